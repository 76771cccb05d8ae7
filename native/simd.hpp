// What the compiler does not vectorise well by itself: sums over the entries above a pivot, and appending the entries
// within bounds to a buffer.
//
// The core is compiled once per instruction set (CMakeLists.txt), each time in a namespace of its own. Everything else,
// and these where there are no masks, relies on loops over a fixed number of lanes, which the compiler turns into
// registers of whatever width there is.
#pragma once

#include <algorithm>
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

constexpr std::size_t lane_count = 32;   // sums side by side
constexpr std::size_t block_size = 512;  // entries between two compensated additions: 16 additions per lane

// The sum of all lanes, as a tree.
HOYER_INLINE double add_lanes(const double (&lanes)[lane_count]) {
    double sums[lane_count];
    for (std::size_t j = 0; j < lane_count; ++j) sums[j] = lanes[j];
    for (std::size_t half = lane_count / 2; half > 0; half /= 2)
        for (std::size_t j = 0; j < half; ++j) sums[j] += sums[j + half];
    return sums[0];
}

template <class N> HOYER_INLINE N largest_lane(const N (&lanes)[lane_count]) {
    N found[lane_count];
    for (std::size_t j = 0; j < lane_count; ++j) found[j] = lanes[j];
    for (std::size_t half = lane_count / 2; half > 0; half /= 2)
        for (std::size_t j = 0; j < half; ++j) found[j] = found[j + half] > found[j] ? found[j + half] : found[j];
    return found[0];
}
template <class N> HOYER_INLINE N smallest_lane(const N (&lanes)[lane_count]) {
    N found[lane_count];
    for (std::size_t j = 0; j < lane_count; ++j) found[j] = lanes[j];
    for (std::size_t half = lane_count / 2; half > 0; half /= 2)
        for (std::size_t j = 0; j < half; ++j) found[j] = found[j + half] < found[j] ? found[j + half] : found[j];
    return found[0];
}

// Sums of (x - reference) over the entries of a block above a pivot.
struct BlockSums {
    double count, sum, sum_of_squares;
};

// The entries next to a pivot on either side, lane by lane, over any number of blocks.
template <class T> struct Neighbours {
    T below[lane_count], above[lane_count];
    Neighbours() {
        std::fill_n(below, lane_count, -std::numeric_limits<T>::infinity());
        std::fill_n(above, lane_count, std::numeric_limits<T>::infinity());
    }
};

// A block of at most block_size entries; the lanes are those of the generic version on every instruction set, so the
// sums have the same bits. `near` may be null.
template <bool Signed, bool Near, class T>
HOYER_INLINE BlockSums sums_above_generic(const T* x, std::size_t n, T pivot, double reference, Neighbours<T>* near) {
    constexpr T infinity = std::numeric_limits<T>::infinity();
    double s1[lane_count]{}, s2[lane_count]{};
    T inside[lane_count]{};
    const auto body = [&](T entry, std::size_t j) __attribute__((always_inline)) {
        const T v = magnitude<Signed>(entry);
        // Compare entries, not differences: a difference may round to zero.
        const bool in = v > pivot;
        const double t = in ? static_cast<double>(v) - reference : 0.0;
        s1[j] += t;
        s2[j] += t * t;
        inside[j] += in ? T(1) : T(0);
        if constexpr (Near) {
            const T up = in ? v : infinity, down = in ? -infinity : v;
            near->above[j] = up < near->above[j] ? up : near->above[j];
            near->below[j] = down > near->below[j] ? down : near->below[j];
        }
    };
    std::size_t i = 0;
    for (; i + lane_count <= n; i += lane_count)
        for (std::size_t j = 0; j < lane_count; ++j) body(x[i + j], j);
    for (std::size_t j = 0; i < n; ++i, ++j) body(x[i], j);
    double count = 0;
    for (std::size_t j = 0; j < lane_count; ++j) count += static_cast<double>(inside[j]);
    return {count, add_lanes(s1), add_lanes(s2)};
}

#if defined(__AVX512F__)

// 32 entries in registers: their magnitudes as doubles, and which of them are above the pivot.
template <bool Signed, class T> struct Quad;

template <bool Signed> struct Quad<Signed, float> {
    __m512 words[2];
    __mmask16 up[2], down[2];
    __m512d value[4];
    __mmask8 in[4];

    // Whole: all 32 entries are there; otherwise only the first `left`.
    template <bool Whole> HOYER_INLINE void load(const float* x, std::size_t left, __m512 pivot) {
#pragma GCC unroll 2
        for (int k = 0; k < 2; ++k) {
            __mmask16 valid = 0xffff;
            if constexpr (!Whole) {
                const int have = static_cast<int>(left) - 16 * k;
                valid = have >= 16 ? 0xffff : have > 0 ? static_cast<__mmask16>((1u << have) - 1) : 0;
            }
            __m512 v = Whole ? _mm512_loadu_ps(x + 16 * k) : _mm512_maskz_loadu_ps(valid, x + 16 * k);
            if constexpr (Signed) v = _mm512_abs_ps(v);
            up[k] = _mm512_mask_cmp_ps_mask(valid, v, pivot, _CMP_GT_OQ);
            down[k] = static_cast<__mmask16>(valid & ~up[k]);
            words[k] = v;
            value[2 * k] = _mm512_cvtps_pd(_mm512_castps512_ps256(v));
            value[2 * k + 1] = _mm512_cvtps_pd(_mm512_extractf32x8_ps(v, 1));
            in[2 * k] = static_cast<__mmask8>(up[k]);
            in[2 * k + 1] = static_cast<__mmask8>(up[k] >> 8);
        }
    }
    HOYER_INLINE std::size_t count() const {
        return static_cast<std::size_t>(std::popcount(up[0] | static_cast<unsigned>(up[1]) << 16));
    }
    static HOYER_INLINE __m512 spread(float value) { return _mm512_set1_ps(value); }

    struct Near {
        __m512 above[2], below[2];
        HOYER_INLINE explicit Near(const Neighbours<float>& from) {
            for (int k = 0; k < 2; ++k) {
                above[k] = _mm512_loadu_ps(from.above + 16 * k);
                below[k] = _mm512_loadu_ps(from.below + 16 * k);
            }
        }
        HOYER_INLINE void see(const Quad& q) {
#pragma GCC unroll 2
            for (int k = 0; k < 2; ++k) {
                above[k] = _mm512_mask_min_ps(above[k], q.up[k], above[k], q.words[k]);
                below[k] = _mm512_mask_max_ps(below[k], q.down[k], below[k], q.words[k]);
            }
        }
        HOYER_INLINE void store(Neighbours<float>& to) const {
            for (int k = 0; k < 2; ++k) {
                _mm512_storeu_ps(to.above + 16 * k, above[k]);
                _mm512_storeu_ps(to.below + 16 * k, below[k]);
            }
        }
    };
};

template <bool Signed> struct Quad<Signed, double> {
    __m512d value[4];
    __mmask8 in[4], down[4];

    template <bool Whole> HOYER_INLINE void load(const double* x, std::size_t left, __m512d pivot) {
#pragma GCC unroll 4
        for (int k = 0; k < 4; ++k) {
            __mmask8 valid = 0xff;
            if constexpr (!Whole) {
                const int have = static_cast<int>(left) - 8 * k;
                valid = have >= 8 ? 0xff : have > 0 ? static_cast<__mmask8>((1u << have) - 1) : 0;
            }
            __m512d v = Whole ? _mm512_loadu_pd(x + 8 * k) : _mm512_maskz_loadu_pd(valid, x + 8 * k);
            if constexpr (Signed) v = _mm512_abs_pd(v);
            value[k] = v;
            in[k] = _mm512_mask_cmp_pd_mask(valid, v, pivot, _CMP_GT_OQ);
            down[k] = static_cast<__mmask8>(valid & ~in[k]);
        }
    }
    HOYER_INLINE std::size_t count() const {
        return static_cast<std::size_t>(std::popcount(in[0] | static_cast<unsigned>(in[1]) << 8 |
                                                      static_cast<unsigned>(in[2]) << 16 |
                                                      static_cast<unsigned>(in[3]) << 24));
    }
    static HOYER_INLINE __m512d spread(double value) { return _mm512_set1_pd(value); }

    struct Near {
        __m512d above[4], below[4];
        HOYER_INLINE explicit Near(const Neighbours<double>& from) {
            for (int k = 0; k < 4; ++k) {
                above[k] = _mm512_loadu_pd(from.above + 8 * k);
                below[k] = _mm512_loadu_pd(from.below + 8 * k);
            }
        }
        HOYER_INLINE void see(const Quad& q) {
#pragma GCC unroll 4
            for (int k = 0; k < 4; ++k) {
                above[k] = _mm512_mask_min_pd(above[k], q.in[k], above[k], q.value[k]);
                below[k] = _mm512_mask_max_pd(below[k], q.down[k], below[k], q.value[k]);
            }
        }
        HOYER_INLINE void store(Neighbours<double>& to) const {
            for (int k = 0; k < 4; ++k) {
                _mm512_storeu_pd(to.above + 8 * k, above[k]);
                _mm512_storeu_pd(to.below + 8 * k, below[k]);
            }
        }
    };
};

template <bool Signed, bool Near, class T>
HOYER_INLINE BlockSums sums_above(const T* x, std::size_t n, T pivot, double reference, Neighbours<T>* near) {
    using Q = Quad<Signed, T>;
    const __m512d r = _mm512_set1_pd(reference);
    const auto threshold = Q::spread(pivot);
    __m512d s1[4], s2[4];
    for (int k = 0; k < 4; ++k) s1[k] = s2[k] = _mm512_setzero_pd();
    std::size_t count = 0, i = 0;
    typename Q::Near sides(Near ? *near : Neighbours<T>());
    const auto add = [&](const Q& q) __attribute__((always_inline)) {
#pragma GCC unroll 4
        for (int k = 0; k < 4; ++k) {
            const __m512d t = _mm512_maskz_sub_pd(q.in[k], q.value[k], r);
            s1[k] = _mm512_add_pd(s1[k], t);
            s2[k] = _mm512_add_pd(s2[k], _mm512_mul_pd(t, t));
        }
        count += q.count();
        if constexpr (Near) sides.see(q);
    };
    for (; i + lane_count <= n; i += lane_count) {
        Q q;
        q.template load<true>(x + i, 0, threshold);
        add(q);
    }
    if (i < n) {
        Q q;
        q.template load<false>(x + i, n - i, threshold);
        add(q);
    }
    if constexpr (Near) sides.store(*near);
    double a[lane_count], b[lane_count];
    for (int k = 0; k < 4; ++k) {
        _mm512_storeu_pd(a + 8 * k, s1[k]);
        _mm512_storeu_pd(b + 8 * k, s2[k]);
    }
    return {static_cast<double>(count), add_lanes(a), add_lanes(b)};
}

#else

template <bool Signed, bool Near, class T>
HOYER_INLINE BlockSums sums_above(const T* x, std::size_t n, T pivot, double reference, Neighbours<T>* near) {
    return sums_above_generic<Signed, Near>(x, n, pivot, reference, near);
}

#endif

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
