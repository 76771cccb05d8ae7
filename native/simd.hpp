// The one thing the compiler cannot vectorise for us: appending the entries within bounds to a buffer.
//
// The core is compiled once per instruction set (CMakeLists.txt), each time in a namespace of its own; everything else
// relies on loops over a fixed number of lanes, which the compiler turns into registers of whatever width there is.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "jobs.hpp"

#ifndef HOYER_ISA
#define HOYER_ISA baseline
#endif

namespace hoyer::inline HOYER_ISA {

// The entry as the search sees it: |x| for the signed set (fact 6), x itself for the non-negative one.
template <bool Signed, class T> HOYER_INLINE T magnitude(T x) { return Signed ? std::fabs(x) : x; }

template <class T> using BitsOf = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;

// |x| as an unsigned integer: ordered like |x|, with infinity and NaN above every finite number.
template <class T> HOYER_INLINE BitsOf<T> size_bits(T x) {
    return std::bit_cast<BitsOf<T>>(x) & (~BitsOf<T>{0} >> 1);
}
template <class T> constexpr BitsOf<T> infinity_bits = std::bit_cast<BitsOf<T>>(std::numeric_limits<T>::infinity());

constexpr std::size_t append_margin = 16;   // room that append may touch beyond what it appends

#if defined(__AVX512F__)

template <bool Signed> HOYER_INLINE std::size_t append16(const float* x, __m512 low, __m512 high, float* to) {
    __m512 v = _mm512_loadu_ps(x);
    if constexpr (Signed) v = _mm512_abs_ps(v);
    const __mmask16 in = _mm512_mask_cmp_ps_mask(_mm512_cmp_ps_mask(v, low, _CMP_GT_OQ), v, high, _CMP_LE_OQ);
    _mm512_storeu_ps(to, _mm512_maskz_compress_ps(in, v));
    return static_cast<std::size_t>(std::popcount(static_cast<unsigned>(in)));
}
template <bool Signed> HOYER_INLINE std::size_t append8(const double* x, __m512d low, __m512d high, double* to) {
    __m512d v = _mm512_loadu_pd(x);
    if constexpr (Signed) v = _mm512_abs_pd(v);
    const __mmask8 in = _mm512_mask_cmp_pd_mask(_mm512_cmp_pd_mask(v, low, _CMP_GT_OQ), v, high, _CMP_LE_OQ);
    _mm512_storeu_pd(to, _mm512_maskz_compress_pd(in, v));
    return static_cast<std::size_t>(std::popcount(static_cast<unsigned>(in)));
}
template <bool Signed> HOYER_INLINE std::size_t append_vectors(const float* x, std::size_t n, float low, float high,
                                                               float* to, std::size_t& i) {
    std::size_t count = 0;
    const __m512 l = _mm512_set1_ps(low), h = _mm512_set1_ps(high);
    for (; i + 16 <= n; i += 16) count += append16<Signed>(x + i, l, h, to + count);
    return count;
}
template <bool Signed> HOYER_INLINE std::size_t append_vectors(const double* x, std::size_t n, double low, double high,
                                                               double* to, std::size_t& i) {
    std::size_t count = 0;
    const __m512d l = _mm512_set1_pd(low), h = _mm512_set1_pd(high);
    for (; i + 8 <= n; i += 8) count += append8<Signed>(x + i, l, h, to + count);
    return count;
}

#elif defined(__AVX2__)

// For each mask the order that brings the chosen 32-bit words to the front.
inline constexpr auto word_order = [] {
    std::array<std::array<std::int32_t, 8>, 256> table{};
    for (unsigned mask = 0; mask < 256; ++mask) {
        int filled = 0;
        for (int word = 0; word < 8; ++word)
            if (mask >> word & 1) table[mask][filled++] = word;
    }
    return table;
}();

HOYER_INLINE __m256i order_of(unsigned mask) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(word_order[mask].data()));
}
template <bool Signed> HOYER_INLINE std::size_t append_vectors(const float* x, std::size_t n, float low, float high,
                                                               float* to, std::size_t& i) {
    std::size_t count = 0;
    const __m256 l = _mm256_set1_ps(low), h = _mm256_set1_ps(high), sign = _mm256_set1_ps(-0.0f);
    for (; i + 8 <= n; i += 8) {
        __m256 v = _mm256_loadu_ps(x + i);
        if constexpr (Signed) v = _mm256_andnot_ps(sign, v);
        const __m256 in = _mm256_and_ps(_mm256_cmp_ps(v, l, _CMP_GT_OQ), _mm256_cmp_ps(v, h, _CMP_LE_OQ));
        const unsigned mask = static_cast<unsigned>(_mm256_movemask_ps(in));
        _mm256_storeu_ps(to + count, _mm256_permutevar8x32_ps(v, order_of(mask)));
        count += static_cast<std::size_t>(std::popcount(mask));
    }
    return count;
}
template <bool Signed> HOYER_INLINE std::size_t append_vectors(const double* x, std::size_t n, double low, double high,
                                                               double* to, std::size_t& i) {
    std::size_t count = 0;
    const __m256d l = _mm256_set1_pd(low), h = _mm256_set1_pd(high), sign = _mm256_set1_pd(-0.0);
    for (; i + 4 <= n; i += 4) {
        __m256d v = _mm256_loadu_pd(x + i);
        if constexpr (Signed) v = _mm256_andnot_pd(sign, v);
        const __m256d in = _mm256_and_pd(_mm256_cmp_pd(v, l, _CMP_GT_OQ), _mm256_cmp_pd(v, h, _CMP_LE_OQ));
        const unsigned mask = static_cast<unsigned>(_mm256_movemask_pd(in));
        // Every double is two words: bit b of the mask becomes bits 2b and 2b + 1.
        const unsigned words = _pdep_u32(mask, 0x55) * 3;
        const __m256 moved = _mm256_permutevar8x32_ps(_mm256_castpd_ps(v), order_of(words));
        _mm256_storeu_pd(to + count, _mm256_castps_pd(moved));
        count += static_cast<std::size_t>(std::popcount(mask));
    }
    return count;
}

#else

template <bool Signed, class T>
HOYER_INLINE std::size_t append_vectors(const T*, std::size_t, T, T, T*, std::size_t&) { return 0; }

#endif

// Appends the magnitudes in (low, high] to `to`, which has room for n + append_margin; returns how many.
template <bool Signed, class T>
HOYER_INLINE std::size_t append_between(const T* x, std::size_t n, T low, T high, T* to) {
    std::size_t i = 0, count = append_vectors<Signed>(x, n, low, high, to, i);
    for (; i < n; ++i) {
        const T v = magnitude<Signed>(x[i]);
        to[count] = v;
        count += (v > low) & (v <= high);
    }
    return count;
}

}  // namespace hoyer::inline HOYER_ISA
