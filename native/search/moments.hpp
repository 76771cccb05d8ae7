// Algorithm 1 as one scan: the support above a pivot, its sums about a reference, and the neighbours of the pivot.
//
// Numerics: all sums are taken in double, in lanes, over short blocks whose results are added with compensation, so
// that the error does not grow with n. The sums run about a reference near the support's mean, never about zero:
// sum(t^2) - sum(t)^2/d loses nothing there. Differences, not entries, are scaled by a power of two.
#pragma once

#include "simd/stream.hpp"

namespace hoyer::inline HOYER_ISA {

// Where the sums are taken: t = (x - reference) * scale, with x halved first where a difference could overflow.
struct Frame {
    double reference = 0, scale = 1, halving = 1;

    double into(double x) const { return (x * halving - reference * halving) * scale; }
    // reference + t / scale, rounded; in halves where a term overflows, though the sum need not.
    double back(double t) const {
        const double sum = (reference * halving + t / scale) / halving;
        return std::isfinite(sum) ? sum : (reference * halving * 0.5 + t * 0.5 / scale) / halving * 2;
    }
    double length(double t) const { return t / scale / halving; }
    // Of a length of the data here.
    double unit() const { return scale * halving; }
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

// Whether a vector has neither NaN nor infinity.
template <class T> bool all_finite(const T* x, std::size_t n) {
    struct Largest {
        BitsOf<T> bits = 0;
        void add(const Largest& other) { bits = std::max(bits, other.bits); }
    };
    const auto found = sum_over_parts<Largest>(n, [&](std::size_t begin, std::size_t size) {
        BitVec<T> largest[4]{};
        const auto see = [&]<bool>(const T* at, std::size_t c) __attribute__((always_inline)) {
            largest[c] = larger(largest[c], size_bits_of<T>(load(at)));
        };
        for_each_register<true, 4>(x + begin, size, T(0), see);
        for (std::size_t c = 1; c < 4; ++c) largest[0] = larger(largest[0], largest[c]);
        return Largest{largest_across<BitsOf<T>>(largest[0])};
    });
    return found.bits < infinity_bits<T>;
}

// What one reading of the vector, or of a part of it, tells before any search.
template <class T> struct Survey {
    T min = std::numeric_limits<T>::infinity(), max = -std::numeric_limits<T>::infinity();
    double ties = 0;        // how many entries equal the maximum
    BitsOf<T> largest = 0;  // magnitude, as bits
    T first{};              // the reference of the two sums below: the first entry of the vector
    Accumulator sum, squares;

    bool finite() const { return largest < infinity_bits<T>; }
    void add(const Survey& other) {
        add_ends(other.min, other.max, other.ties);
        largest = std::max(largest, other.largest);
        first = other.first;
        sum.add(other.sum);
        squares.add(other.squares);
    }
    void add_ends(T low, T high, double count) {
        min = std::min(min, low);
        if (high > max) ties = 0;
        if (high >= max) ties += count;
        max = std::max(max, high);
    }
};

template <bool Signed, class T> void survey_block(const T* x, std::size_t n, Survey<T>& to) {
    constexpr T infinity = std::numeric_limits<T>::infinity();
    Vec<double> reference[doubles_per<T>], sums[2][doubles_per<T>]{}, squares[2][doubles_per<T>]{};
    std::fill_n(reference, doubles_per<T>, splat(static_cast<double>(to.first)));
    Vec<T> low = splat(infinity), high = splat(-infinity);
    BitVec<T> largest{};
    // The first entry, which fills up the last register, adds nothing.
    for_each_register<Signed, 2>(x, n, to.first,
                                 [&]<bool S>(const T* at, std::size_t c) __attribute__((always_inline)) {
                                     const Vec<T> v = load_magnitudes<S>(at);
                                     low = smaller(v, low);
                                     high = larger(v, high);
                                     largest = larger(largest, size_bits_of<T>(v));
                                     add_above(v, splat(-infinity), reference, sums[c], squares[c]);
                                 });
    const T top = largest_across<T>(high);
    Vec<CountOf<T>> ties{};
    if (top >= to.max) {
        const Vec<T> tops = splat(top);
        for_each_register<Signed, 1>(x, n, -infinity,
                                     [&]<bool S>(const T* at, std::size_t) __attribute__((always_inline)) {
                                         ties -= load_magnitudes<S>(at) == tops;  // a mask is -1
                                     });
    }
    to.add_ends(smallest_across<T>(low), top, static_cast<double>(sum_across<CountOf<T>>(ties)));
    to.largest = std::max(to.largest, largest_across<BitsOf<T>>(largest));
    to.sum.add(sum_of_parts(sums[0]) + sum_of_parts(sums[1]));
    to.squares.add(sum_of_parts(squares[0]) + sum_of_parts(squares[1]));
}

template <bool Signed, class T> Survey<T> survey(const T* x, std::size_t n) {
    return sum_over_parts<Survey<T>>(n, [&](std::size_t begin, std::size_t size) {
        Survey<T> part;
        part.first = magnitude<Signed>(x[0]);
        for (std::size_t i = 0; i < size; i += sum_block<T>)
            survey_block<Signed>(x + begin + i, std::min(sum_block<T>, size - i), part);
        return part;
    });
}

// The entries above a pivot: their sums in a frame, and the entries next to the pivot.
template <class T, class Sums = TotalSums> struct Moments {
    Sums sums;
    T below = -std::numeric_limits<T>::infinity();  // largest entry <= pivot (x_j of the paper)
    T above = std::numeric_limits<T>::infinity();   // smallest entry > pivot (x_k of the paper)

    void add(const Moments& other) {
        sums.add(other.sums);
        below = std::max(below, other.below);
        above = std::min(above, other.above);
    }
};

// In an ordinary frame.
template <bool Signed, class T> Moments<T> plain_moments(const T* x, std::size_t n, T pivot, double reference) {
    return sum_over_parts<Moments<T>>(n, [&](std::size_t first, std::size_t length) {
        Moments<T> part;
        Neighbours<T> near;
        for (std::size_t begin = 0; begin < length; begin += sum_block<T>) {
            const std::size_t size = std::min(length - begin, sum_block<T>);
            part.sums.add(sums_above<Signed>(x + first + begin, size, pivot, reference, near));
        }
        part.below = largest_across<T>(near.below);
        part.above = smallest_across<T>(near.above);
        return part;
    });
}

// In a frame that scales: rare, so plainly one entry after the other, pairwise enough through the compensation.
template <bool Signed, class T> Moments<T> scaled_moments(const T* x, std::size_t n, T pivot, const Frame& frame) {
    Moments<T> result;
    for (std::size_t i = 0; i < n; ++i) {
        const T v = magnitude<Signed>(x[i]);
        if (v > pivot) {
            const double t = frame.into(v);
            result.sums.add(EntrySums{1, t, t * t});
            result.above = std::min(result.above, v);
        } else {
            result.below = std::max(result.below, v);
        }
    }
    return result;
}

template <bool Signed, class T> Moments<T> moments(const T* x, std::size_t n, T pivot, const Frame& frame) {
    return frame.plain() ? plain_moments<Signed>(x, n, pivot, frame.reference)
                         : scaled_moments<Signed>(x, n, pivot, frame);
}

// The entries of x that are not zero, or are positive, and both norms of them, in units of `unit`, a power of two.
struct Norms : EntrySums {
    double unit = 1;
    bool finite = true;  // all entries, also those that do not count
    double l2() const { return std::sqrt(squares); }
};

// A part of a vector, in units of `unit`.
struct NormSums {
    TotalSums sums;
    double largest = 0, lowest = 0;
    void add(const NormSums& other) {
        sums.add(other.sums);
        largest = std::max(largest, other.largest);
        lowest = std::min(lowest, other.lowest);
    }
};

// Entries that a mask leaves out are zeros here.
template <bool Positive, bool Masked, class T> NormSums norm_sums(const T* x, Mask mask, std::size_t n, double unit) {
    constexpr std::size_t parts = doubles_per<T>;
    const double scale = 1 / unit;
    NormSums result;
    Vec<T> largest{}, lowest{};
    for (std::size_t begin = 0; begin < n; begin += sum_block<T>) {
        Vec<double> sums[2][parts]{}, squares[2][parts]{};
        Vec<CountOf<T>> zeros{};
        const std::size_t size = std::min(sum_block<T>, n - begin);
        const auto see = [&](Vec<T> v, std::size_t c, std::size_t) __attribute__((always_inline)) {
            // NaN must stay, so the negative ones are replaced rather than the positive ones chosen.
            if constexpr (Positive) {
                lowest = smaller(v, lowest);
                v = v <= Vec<T>{} ? Vec<T>{} : v;
            }
            zeros -= v == Vec<T>{};  // a mask is -1
            largest = larger(v, largest);
            Vec<double> w[parts];
            widen<T>(v, w);
#pragma GCC unroll 2
            for (std::size_t k = 0; k < parts; ++k) {
                w[k] *= scale;
                sums[c][k] += w[k];
                squares[c][k] = fused(w[k], w[k], squares[c][k]);
            }
        };
        for_each_magnitudes<!Positive, 2, Masked>(x + begin, Masked ? mask + begin : nullptr, size, T(0), see);
        const std::size_t seen = (size + width<T> - 1) / width<T> * width<T>;
        result.sums.add(EntrySums{static_cast<double>(seen) - static_cast<double>(sum_across<CountOf<T>>(zeros)),
                                  sum_of_parts(sums[0]) + sum_of_parts(sums[1]),
                                  sum_of_parts(squares[0]) + sum_of_parts(squares[1])});
    }
    result.largest = static_cast<double>(largest_across<T>(largest));
    result.lowest = static_cast<double>(smallest_across<T>(lowest));
    return result;
}

// With a mask, only entries that it leaves count.
template <bool Positive, class T> Norms norms(const T* x, std::size_t n, Mask mask = nullptr) {
    const auto sums_in = [&](double unit) {
        return sum_over_parts<NormSums>(n, [&](std::size_t begin, std::size_t size) {
            return mask ? norm_sums<Positive, true>(x + begin, mask + begin, size, unit)
                        : norm_sums<Positive, false>(x + begin, nullptr, size, unit);
        });
    };
    double unit = 1;
    NormSums sums = sums_in(unit);
    // Squares of doubles may overflow or vanish; those of floats do not.
    const double largest = sums.largest;
    if (sizeof(T) == 8 && !(largest > 1e-100 && largest < 1e100) && largest > 0 && std::isfinite(largest)) {
        unit = std::ldexp(1.0, std::clamp(std::ilogb(largest), -1022, 1022));
        sums = sums_in(unit);
    }
    const EntrySums total = sums.sums.value();
    return {total, unit, std::isfinite(total.sum) && std::isfinite(sums.lowest)};
}

}  // namespace hoyer::inline HOYER_ISA
