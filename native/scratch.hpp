// Memory that a thread keeps from call to call.
#pragma once

#include <cstddef>
#include <memory>

#include "run/machine.hpp"

namespace hoyer::inline HOYER_ISA {

// What it is for, one piece each: the sample, the entries inside its bracket (`Sampled`), the support of a result
// (`NotedSupport`).
enum class Use { sample, entries, noted };

// It is not filled with anything, so that only what is used takes space; in large pages if it is large itself.
template <class T, Use> T* scratch(std::size_t size) {
    constexpr std::size_t large = std::size_t{1} << 23;
    thread_local std::unique_ptr<T[]> memory;
    thread_local std::size_t available = 0;
    if (available < size) {
        memory.reset();
        available = 0;
        memory = std::make_unique_for_overwrite<T[]>(size);
        if (size * sizeof(T) >= large) use_large_pages(memory.get(), size * sizeof(T));
        available = size;
    }
    return memory.get();
}

}  // namespace hoyer::inline HOYER_ISA
