// Memory that a thread keeps from call to call.
#pragma once

#include <cstddef>
#include <memory>

namespace hoyer::inline HOYER_ISA {

// What it is for, one piece each: the sample, the entries inside its bracket (`Sampled`), the support of a result
// (`NotedSupport`).
enum class Use { sample, entries, noted };

// It is not filled with anything, so that only what is used takes space.
template <class T, Use> T* scratch(std::size_t size) {
    thread_local std::unique_ptr<T[]> memory;
    thread_local std::size_t available = 0;
    if (available < size) {
        memory.reset();
        available = 0;
        memory = std::make_unique_for_overwrite<T[]>(size);
        available = size;
    }
    return memory.get();
}

}  // namespace hoyer::inline HOYER_ISA
