// Algorithm 1 as one scan: the support above a pivot, its sums about a reference, and the neighbours of the pivot.
//
// Numerics: all sums are taken in double, in lanes, over short blocks whose results are added with compensation, so that
// the error does not grow with n. The sums run about a reference near the support's mean, never about zero:
// sum(t^2) - sum(t)^2/d loses nothing there (DESIGN 4.2). Differences, not entries, are scaled by a power of two.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "target.hpp"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(HOYER_NO_CLONES)
#define HOYER_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define HOYER_CLONES
#endif
#define HOYER_INLINE inline __attribute__((always_inline))
#define HOYER_LAMBDA __attribute__((always_inline))
#define HOYER_UNROLL _Pragma("GCC unroll 4")

namespace hoyer {

constexpr std::size_t lane_count = 8;    // entries in one vector register's worth of doubles
constexpr std::size_t strand_count = 4;  // independent lanes side by side: they hide latency and shorten every sum
constexpr std::size_t stride = lane_count * strand_count;
constexpr std::size_t block_size = 512;  // entries between two compensated additions: 16 additions per lane

template <class T> struct LaneTypes;
template <> struct LaneTypes<double> {
    typedef double Values __attribute__((vector_size(lane_count * 8)));
    typedef std::int64_t Mask __attribute__((vector_size(lane_count * 8)));
};
template <> struct LaneTypes<float> {
    typedef float Values __attribute__((vector_size(lane_count * 4)));
    typedef std::int32_t Mask __attribute__((vector_size(lane_count * 4)));
};
template <class T> using Lanes = typename LaneTypes<T>::Values;
template <class T> using LaneMask = typename LaneTypes<T>::Mask;
using Wide = Lanes<double>;
using WideMask = LaneMask<double>;

template <class T> HOYER_INLINE Lanes<T> broadcast(T value) { return Lanes<T>{} + value; }
template <class T> HOYER_INLINE Wide widen(Lanes<T> v) { return __builtin_convertvector(v, Wide); }
template <class T> HOYER_INLINE WideMask widen_mask(LaneMask<T> m) { return __builtin_convertvector(m, WideMask); }

// The entry as the search sees it: |x| for the signed set (fact 6), x itself for the non-negative one.
template <bool Signed, class T> HOYER_INLINE T magnitude(T x) { return Signed ? std::fabs(x) : x; }
template <bool Signed, class T> HOYER_INLINE Lanes<T> magnitudes(Lanes<T> v) {
    if constexpr (Signed) {
        // Clearing the sign bit; also of NaN, which stays NaN.
        constexpr auto all_but_sign = std::numeric_limits<std::decay_t<decltype(LaneMask<T>{}[0])>>::max();
        const LaneMask<T> bits = reinterpret_cast<LaneMask<T>>(v) & (LaneMask<T>{} + all_but_sign);
        return reinterpret_cast<Lanes<T>>(bits);
    } else {
        return v;
    }
}

// Entries i, i + 1, ... as lanes; from `end` on `filler` stands in.
template <class T> HOYER_INLINE Lanes<T> load(const T* x, std::size_t i, std::size_t end, T filler) {
    Lanes<T> v;
    if (i + lane_count <= end) {
        std::memcpy(&v, x + i, sizeof v);
    } else {
        v = broadcast<T>(filler);
        for (std::size_t j = 0; i + j < end; ++j) v[j] = x[i + j];
    }
    return v;
}

// The sum of all lanes of all strands, as a tree.
HOYER_INLINE double add_lanes(const Wide (&strands)[strand_count]) {
    static_assert(strand_count == 4 && lane_count == 8);
    const Wide v = (strands[0] + strands[2]) + (strands[1] + strands[3]);
    return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
}
HOYER_INLINE double add_lanes(Wide v) {
    return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
}

// A running sum whose rounding errors are added up beside it.
struct Accumulator {
    double sum = 0, carry = 0;
    void add(double term) {
        const DoubleDouble s = two_sum(sum, term);
        sum = s.hi;
        carry += s.lo;
    }
    // An overflowed sum has no meaningful carry.
    double value() const { return std::isfinite(sum) ? sum + carry : sum; }
};

// Where the sums are taken: t = (x - reference) * scale, with x halved first where a difference could overflow.
struct Frame {
    double reference = 0, scale = 1, halving = 1;

    double into(double x) const { return (x * halving - reference * halving) * scale; }
    // reference + t / scale, rounded.
    double back(double t) const { return (reference * halving + t / scale) / halving; }
    double length(double t) const { return t / scale / halving; }
    bool plain() const { return scale == 1 && halving == 1; }

    // A frame in which differences up to `range` square safely; nothing is scaled in the ordinary range.
    template <class T> static Frame about(double reference, T low, T high) {
        Frame f{reference, 1, 1};
        if constexpr (sizeof(T) == 8) {
            double range = high - low;
            if (!std::isfinite(range)) {
                f.halving = 0.5;
                range = high * 0.5 - low * 0.5;
            }
            if (!(range > 1e-100 && range < 1e100)) {
                const int exponent = range > 0 ? std::ilogb(range) : 0;
                f.scale = std::ldexp(1.0, std::clamp(-exponent, -1022, 1022));
            }
        }
        return f;
    }
};

// What one reading of the vector tells before any search.
template <class T> struct Survey {
    T min, max;
    double ties;        // how many entries equal the maximum
    bool finite;
    double first;       // the reference of the two sums below: the first entry
    double sum, sum_of_squares;
};

template <bool Signed, class T> HOYER_CLONES Survey<T> survey(const T* x, std::size_t n) {
    using V = Lanes<T>;
    const T first = magnitude<Signed>(x[0]);
    const Wide reference = broadcast<double>(first);
    const V largest = broadcast<T>(std::numeric_limits<T>::max());
    V low = broadcast<T>(first), high = low;
    LaneMask<T> ties{}, finite = ~LaneMask<T>{};
    Accumulator sum, squares;
    for (std::size_t begin = 0; begin < n; begin += block_size) {
        const std::size_t end = std::min(n, begin + block_size);
        Wide s1[strand_count]{}, s2[strand_count]{};
        for (std::size_t i = begin; i < end; i += stride) {
            HOYER_UNROLL for (std::size_t j = 0; j < strand_count; ++j) {
                // The first entry stands in beyond the end: it adds nothing to the sums about itself.
                const V v = magnitudes<Signed, T>(load<T>(x, i + j * lane_count, end, x[0]));
                const Wide t = widen<T>(v) - reference;
                s1[j] += t;
                s2[j] += t * t;
                finite &= (v <= largest) & (v >= -largest);
                ties = (v > high) ? LaneMask<T>{} : ties;
                ties -= (v >= high);
                high = (v > high) ? v : high;
                low = (v < low) ? v : low;
            }
        }
        sum.add(add_lanes(s1));
        squares.add(add_lanes(s2));
    }
    Survey<T> result{low[0], high[0], 0, true, static_cast<double>(first), sum.value(), squares.value()};
    for (std::size_t i = 0; i < lane_count; ++i) {
        result.min = std::min(result.min, low[i]);
        result.max = std::max(result.max, high[i]);
        result.finite = result.finite && finite[i];
    }
    for (std::size_t i = 0; i < lane_count; ++i)
        if (high[i] == result.max) result.ties += static_cast<double>(ties[i]);
    const std::size_t filled = (stride - n % stride) % stride;
    if (first == result.max) result.ties -= static_cast<double>(filled);
    return result;
}

// The entries above a pivot: their number, their sums in a frame, and the entries next to the pivot.
template <class T> struct Moments {
    double count = 0, sum = 0, sum_of_squares = 0;
    T below = -std::numeric_limits<T>::infinity();   // largest entry <= pivot (x_j of the paper)
    T above = std::numeric_limits<T>::infinity();    // smallest entry > pivot (x_k of the paper)
};

template <bool Signed, bool Plain, class T>
HOYER_CLONES Moments<T> scan(const T* x, std::size_t n, T pivot, Frame frame) {
    using V = Lanes<T>;
    const T nothing = -std::numeric_limits<T>::infinity();
    const V threshold = broadcast<T>(pivot), none = broadcast<T>(nothing);
    const Wide reference = broadcast<double>(frame.reference * frame.halving);
    V below = none, above = -none;
    Accumulator count, sum, squares;
    for (std::size_t begin = 0; begin < n; begin += block_size) {
        const std::size_t end = std::min(n, begin + block_size);
        Wide s1[strand_count]{}, s2[strand_count]{};
        LaneMask<T> inside{};
        for (std::size_t i = begin; i < end; i += stride) {
            HOYER_UNROLL for (std::size_t j = 0; j < strand_count; ++j) {
                V v = load<T>(x, i + j * lane_count, end, nothing);
                // The filler must stay below every pivot.
                if constexpr (Signed) v = (v == none) ? none : magnitudes<Signed, T>(v);
                // Compare entries, not differences: a difference may round to zero.
                const LaneMask<T> in = v > threshold;
                Wide t;
                if constexpr (Plain)
                    t = widen<T>(v) - reference;
                else
                    t = (widen<T>(v) * frame.halving - reference) * frame.scale;
                t = widen_mask<T>(in) ? t : Wide{};
                s1[j] += t;
                s2[j] += t * t;
                inside -= in;
                above = (in & (v < above)) ? v : above;
                below = (~in & (v > below)) ? v : below;
            }
        }
        count.add(add_lanes(__builtin_convertvector(inside, Wide)));
        sum.add(add_lanes(s1));
        squares.add(add_lanes(s2));
    }
    Moments<T> result{count.value(), sum.value(), squares.value()};
    for (std::size_t i = 0; i < lane_count; ++i) {
        result.below = std::max(result.below, below[i]);
        result.above = std::min(result.above, above[i]);
    }
    return result;
}

template <bool Signed, class T> Moments<T> moments(const T* x, std::size_t n, T pivot, Frame frame) {
    return frame.plain() ? scan<Signed, true>(x, n, pivot, frame) : scan<Signed, false>(x, n, pivot, frame);
}

// Both norms of x, or of its positive part, and how many entries are not zero; in units of `unit`, a power of two.
struct Norms {
    double unit = 1, sum = 0, sum_of_squares = 0, count = 0;
    double l2() const { return std::sqrt(sum_of_squares); }
};

template <bool Positive, class T> HOYER_CLONES Norms norms(const T* x, std::size_t n) {
    using V = Lanes<T>;
    const auto sizes = [&](std::size_t i, std::size_t end) HOYER_LAMBDA {
        const V v = load<T>(x, i, end, T(0));
        // NaN must stay, so the negative ones are replaced rather than the positive ones chosen.
        if constexpr (Positive) return (v <= V{}) ? V{} : v;
        else return magnitudes<true, T>(v);
    };
    V high{};
    for (std::size_t i = 0; i < n; i += lane_count) {
        const V v = sizes(i, n);
        high = (v > high) ? v : high;
    }
    double largest = 0;
    for (std::size_t i = 0; i < lane_count; ++i) largest = std::max(largest, static_cast<double>(high[i]));

    Norms result;
    if (!(largest > 1e-100 && largest < 1e100) && largest > 0 && std::isfinite(largest))
        result.unit = std::ldexp(1.0, std::clamp(std::ilogb(largest), -1022, 1022));
    const double scale = 1 / result.unit;
    Accumulator sum, squares, count;
    for (std::size_t begin = 0; begin < n; begin += block_size) {
        const std::size_t end = std::min(n, begin + block_size);
        Wide s1[strand_count]{}, s2[strand_count]{};
        LaneMask<T> nonzero{};
        for (std::size_t i = begin; i < end; i += stride) {
            HOYER_UNROLL for (std::size_t j = 0; j < strand_count; ++j) {
                const V v = sizes(i + j * lane_count, end);
                const Wide w = widen<T>(v) * scale;
                s1[j] += w;
                s2[j] += w * w;
                nonzero -= (v != V{});
            }
        }
        sum.add(add_lanes(s1));
        squares.add(add_lanes(s2));
        count.add(add_lanes(__builtin_convertvector(nonzero, Wide)));
    }
    result.sum = sum.value();
    result.sum_of_squares = squares.value();
    result.count = count.value();
    return result;
}

}  // namespace hoyer
