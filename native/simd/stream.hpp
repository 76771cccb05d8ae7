// Writing one long result: in parts shared by the threads, and past the caches where it is larger than they are.
#pragma once

#include "run/machine.hpp"
#include "run/pool.hpp"
#include "simd/sums.hpp"

namespace hoyer::inline HOYER_ISA {

constexpr std::size_t part_size = std::size_t{1} << 18;  // entries per task: the bits must not depend on the threads
constexpr std::size_t line_bytes = 64;

// The sum of what part(begin, size) returns for every part of a long vector; it must have add(other).
template <class Sum, class Part> Sum sum_over_parts(std::size_t n, Part part) {
    if (n <= part_size) return part(std::size_t{0}, n);
    std::vector<Sum> found((n + part_size - 1) / part_size);
    auto work = [&](std::size_t i, bool) { found[i] = part(i * part_size, std::min(part_size, n - i * part_size)); };
    for_each_task(found.size(), work);
    Sum total;
    for (const Sum& one : found) total.add(one);
    return total;
}

// Entries of any type as words, a register of which is stored at a time.
using Word = std::uint32_t;

// A result of which part(begin, size, to) makes entries begin to begin + size - 1, wherever `to` points: those that go
// past the caches by way of a small block.
template <class Out, class Part> class ByBlocks {
public:
    explicit ByBlocks(Part part) : part_(part) {}

    template <Stores How> void fill(std::size_t begin, std::size_t size, Out* to) const {
        if constexpr (How == Stores::cached) {
            part_(begin, size, to);
        } else {
            alignas(line_bytes) Out block[block_size];
            for (std::size_t i = 0; i < size; i += block_size) {
                const std::size_t some = std::min(block_size, size - i);
                part_(begin + i, some, block);
                const Word* from = reinterpret_cast<const Word*>(block);
                Word* words = reinterpret_cast<Word*>(to + i);
                for (std::size_t j = 0; j < some * sizeof(Out) / sizeof(Word); j += width<Word>)
                    store<How>(words + j, load(from + j));
            }
        }
    }

private:
    Part part_;
};

// Has result.fill<How>(begin, size, to) make the entries until out[first] to out[last - 1] are there: past the caches
// whole cache lines.
template <class Out, class Result>
void write_range(Out* out, std::size_t first, std::size_t last, bool past_caches, const Result& result) {
    if (past_caches) {
        const std::size_t beyond = reinterpret_cast<std::uintptr_t>(out + first) % line_bytes;
        const std::size_t head = std::min(last - first, beyond ? (line_bytes - beyond) / sizeof(Out) : 0);
        if (head > 0) result.template fill<Stores::cached>(first, head, out + first);
        first += head;
        const std::size_t lines = (last - first) / (line_bytes / sizeof(Out)) * (line_bytes / sizeof(Out));
        result.template fill<Stores::past_caches>(first, lines, out + first);
        first += lines;
#if defined(__SSE2__)
        _mm_sfence();
#endif
    }
    if (first < last) result.template fill<Stores::cached>(first, last - first, out + first);
}

// The whole result. `in_place`: what is read to make it lies where it goes, so it is in the caches already, whose size
// is `cache_bytes` (0: that of this machine).
template <class Out, class Result>
void write_long(Out* out, std::size_t n, bool in_place, const Result& result, std::size_t cache_bytes = 0) {
    if (n <= part_size) return result.template fill<Stores::cached>(std::size_t{0}, n, out);
    const bool past_caches = !in_place && n * sizeof(Out) > (cache_bytes ? cache_bytes : last_level_cache());
    const std::size_t parts = (n + part_size - 1) / part_size;
    // Backwards: what was read last, when the result was found, is in the caches still.
    auto work = [&](std::size_t task, bool) {
        const std::size_t part = parts - 1 - task;
        write_range(out, part * part_size, std::min(n, (part + 1) * part_size), past_caches, result);
    };
    for_each_task(parts, work);
}

}  // namespace hoyer::inline HOYER_ISA
