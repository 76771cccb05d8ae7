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

// Whole cache lines to memory that nobody reads soon: they need not be fetched before they are overwritten.
HOYER_INLINE void stream_lines(char* to, const char* from, std::size_t bytes) {
#if defined(__AVX512F__)
    for (std::size_t i = 0; i < bytes; i += 64)
        _mm512_stream_si512(reinterpret_cast<__m512i*>(to + i), _mm512_loadu_si512(from + i));
#elif defined(__SSE2__)
    for (std::size_t i = 0; i < bytes; i += 16)
        _mm_stream_si128(reinterpret_cast<__m128i*>(to + i),
                         _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i)));
#else
    std::memcpy(to, from, bytes);
#endif
}

// Has fill(begin, size, to) make entries begin to begin + size - 1, wherever `to` points, until out[first] to
// out[last - 1] are there.
template <class Out, class Fill>
void write_range(Out* out, std::size_t first, std::size_t last, bool past_caches, Fill& fill) {
    if (past_caches) {
        const std::size_t beyond = reinterpret_cast<std::uintptr_t>(out + first) % line_bytes;
        const std::size_t head = std::min(last - first, beyond ? (line_bytes - beyond) / sizeof(Out) : 0);
        fill(first, head, out + first);
        alignas(line_bytes) Out block[block_size];
        for (first += head; first + block_size <= last; first += block_size) {
            fill(first, block_size, block);
            stream_lines(reinterpret_cast<char*>(out + first), reinterpret_cast<const char*>(block), sizeof block);
        }
#if defined(__SSE2__)
        _mm_sfence();
#endif
    }
    fill(first, last - first, out + first);
}

// The whole result. `in_place`: what is read to make it lies where it goes, so it is in the caches already, whose size
// is `cache_bytes` (0: that of this machine).
template <class Out, class Fill>
void write_long(Out* out, std::size_t n, bool in_place, Fill fill, std::size_t cache_bytes = 0) {
    if (n <= part_size) return fill(std::size_t{0}, n, out);
    const bool past_caches = !in_place && n * sizeof(Out) > (cache_bytes ? cache_bytes : last_level_cache());
    const std::size_t parts = (n + part_size - 1) / part_size;
    // Backwards: what was read last, when the result was found, is in the caches still.
    auto work = [&](std::size_t task, bool) {
        const std::size_t part = parts - 1 - task;
        write_range(out, part * part_size, std::min(n, (part + 1) * part_size), past_caches, fill);
    };
    for_each_task(parts, work);
}

}  // namespace hoyer::inline HOYER_ISA
