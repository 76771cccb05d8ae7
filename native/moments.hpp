// Algorithm 1 as one scan: the support above a pivot, its sums about a reference, and the neighbours of the pivot.
//
// Numerics: all sums are taken in double, in lanes, over short blocks whose results are added with compensation, so that
// the error does not grow with n. The sums run about a reference near the support's mean, never about zero:
// sum(t^2) - sum(t)^2/d loses nothing there (DESIGN 4.2). Differences, not entries, are scaled by a power of two.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "simd.hpp"
#include "target.hpp"

namespace hoyer::inline HOYER_ISA {

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

// Calls body(x, lane) on every entry, lanes of a block side by side; `flush` after each block.
template <class T, class Body, class Flush>
HOYER_INLINE void for_each_block(const T* x, std::size_t n, Body&& body, Flush&& flush) {
    for (std::size_t begin = 0; begin < n; begin += block_size) {
        const std::size_t end = std::min(n, begin + block_size);
        std::size_t i = begin;
        for (; i + lane_count <= end; i += lane_count)
            for (std::size_t j = 0; j < lane_count; ++j) body(x[i + j], j);
        for (std::size_t j = 0; i < end; ++i, ++j) body(x[i], j);
        flush();
    }
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

template <bool Signed, class T> Survey<T> survey(const T* x, std::size_t n) {
    const T first = magnitude<Signed>(x[0]);
    const double reference = first;
    T low[lane_count], high[lane_count], ties[lane_count]{}, bad[lane_count]{};
    std::fill_n(low, lane_count, first);
    std::fill_n(high, lane_count, first);
    double s1[lane_count]{}, s2[lane_count]{};
    Accumulator sum, squares, counts;
    T known = first;      // the maximum that `counts` counts
    const auto body = [&](T entry, std::size_t j) __attribute__((always_inline)) {
        const T v = magnitude<Signed>(entry);
        const double t = static_cast<double>(v) - reference;
        s1[j] += t;
        s2[j] += t * t;
        // Zero times anything finite is zero; anything else sticks.
        bad[j] += v * T(0);
        ties[j] = v > high[j] ? T(1) : (v == high[j] ? ties[j] + T(1) : ties[j]);
        high[j] = v > high[j] ? v : high[j];
        low[j] = v < low[j] ? v : low[j];
    };
    const auto flush = [&]() __attribute__((always_inline)) {
        sum.add(add_lanes(s1));
        squares.add(add_lanes(s2));
        std::fill_n(s1, lane_count, 0.0);
        std::fill_n(s2, lane_count, 0.0);
        // Counts leave the lanes before a float could fail to hold them.
        const T highest = *std::max_element(high, high + lane_count);
        if (highest > known) counts = {}, known = highest;
        for (std::size_t j = 0; j < lane_count; ++j) {
            if (high[j] == known) counts.add(ties[j]);
            high[j] = known;
            ties[j] = 0;
        }
    };
    for_each_block(x, n, body, flush);
    Survey<T> result{low[0], known, counts.value(), true, reference, sum.value(), squares.value()};
    for (std::size_t j = 0; j < lane_count; ++j) {
        result.min = std::min(result.min, low[j]);
        result.finite = result.finite && bad[j] == 0;
    }
    return result;
}

// The entries above a pivot: their number, their sums in a frame, and the entries next to the pivot.
template <class T> struct Moments {
    double count = 0, sum = 0, sum_of_squares = 0;
    T below = -std::numeric_limits<T>::infinity();   // largest entry <= pivot (x_j of the paper)
    T above = std::numeric_limits<T>::infinity();    // smallest entry > pivot (x_k of the paper)
};

template <bool Signed, bool Plain, class T>
Moments<T> scan(const T* x, std::size_t n, T pivot, Frame frame) {
    constexpr T infinity = std::numeric_limits<T>::infinity();
    const double reference = frame.reference * frame.halving, halving = frame.halving, scale = frame.scale;
    double s1[lane_count]{}, s2[lane_count]{};
    T inside[lane_count]{}, below[lane_count], above[lane_count];
    std::fill_n(below, lane_count, -infinity);
    std::fill_n(above, lane_count, infinity);
    Accumulator count, sum, squares;
    const auto body = [&](T entry, std::size_t j) __attribute__((always_inline)) {
        const T v = magnitude<Signed>(entry);
        // Compare entries, not differences: a difference may round to zero.
        const bool in = v > pivot;
        double t;
        if constexpr (Plain)
            t = static_cast<double>(v) - reference;
        else
            t = (static_cast<double>(v) * halving - reference) * scale;
        t = in ? t : 0.0;
        s1[j] += t;
        s2[j] += t * t;
        inside[j] += in ? T(1) : T(0);
        const T up = in ? v : infinity, down = in ? -infinity : v;
        above[j] = up < above[j] ? up : above[j];
        below[j] = down > below[j] ? down : below[j];
    };
    const auto flush = [&]() __attribute__((always_inline)) {
        double counts = 0;
        for (std::size_t j = 0; j < lane_count; ++j) counts += inside[j];
        count.add(counts);
        sum.add(add_lanes(s1));
        squares.add(add_lanes(s2));
        std::fill_n(inside, lane_count, T(0));
        std::fill_n(s1, lane_count, 0.0);
        std::fill_n(s2, lane_count, 0.0);
    };
    for_each_block(x, n, body, flush);
    Moments<T> result{count.value(), sum.value(), squares.value()};
    result.below = *std::max_element(below, below + lane_count);
    result.above = *std::min_element(above, above + lane_count);
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

template <bool Positive, class T> Norms norms(const T* x, std::size_t n) {
    // NaN must stay, so the negative ones are replaced rather than the positive ones chosen.
    const auto size = [](T v) __attribute__((always_inline)) { return Positive ? (v <= 0 ? T(0) : v) : std::fabs(v); };
    T high[lane_count]{};
    for_each_block(
        x, n,
        [&](T entry, std::size_t j) __attribute__((always_inline)) {
            const T v = size(entry);
            high[j] = v > high[j] ? v : high[j];
        },
        [] {});
    const double largest = *std::max_element(high, high + lane_count);

    Norms result;
    if (!(largest > 1e-100 && largest < 1e100) && largest > 0 && std::isfinite(largest))
        result.unit = std::ldexp(1.0, std::clamp(std::ilogb(largest), -1022, 1022));
    const double scale = 1 / result.unit;
    double s1[lane_count]{}, s2[lane_count]{}, nonzero[lane_count]{};
    Accumulator sum, squares, count;
    for_each_block(
        x, n,
        [&](T entry, std::size_t j) __attribute__((always_inline)) {
            const double w = static_cast<double>(size(entry)) * scale;
            s1[j] += w;
            s2[j] += w * w;
            nonzero[j] += size(entry) != 0 ? 1.0 : 0.0;
        },
        [&]() __attribute__((always_inline)) {
            sum.add(add_lanes(s1));
            squares.add(add_lanes(s2));
            count.add(add_lanes(nonzero));
            std::fill_n(s1, lane_count, 0.0);
            std::fill_n(s2, lane_count, 0.0);
            std::fill_n(nonzero, lane_count, 0.0);
        });
    result.sum = sum.value();
    result.sum_of_squares = squares.value();
    result.count = count.value();
    return result;
}

}  // namespace hoyer::inline HOYER_ISA
