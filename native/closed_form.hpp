// What a set adds to the search: from count, mean and spread of the entries above a pivot to shift and scale.
//
// The sets here have both norms given, with l2 = 1, or l1 alone. The searches ask for it once per pass over the
// entries, never for an entry. They rely on one property: whatever the pivot, the shift of its support is a lower bound
// of the shift looked for, and it is that shift if no entry lies between it and the pivot.
#pragma once

#include <numbers>

#include "simd/sums.hpp"

namespace hoyer::inline HOYER_ISA {

// In standard deviations from the mean: the pivot at which a normal vector has what is wanted of its norms, and the
// mean of the entries above it.
struct Start {
    double pivot, centre;
};

// A standard normal z above c.
struct NormalTail {
    double above, first, second, centre;  // P(z > c), E[(z-c)+], E[(z-c)+^2], E[z | z > c]

    explicit NormalTail(double c) {
        const double density = std::exp(-0.5 * c * c) / std::sqrt(2 * std::numbers::pi);
        above = 0.5 * std::erfc(c / std::sqrt(2.0));
        first = density - c * above;
        second = (1 + c * c) * above - c * density;
        centre = density / above;
    }
};

// E[(z-c)+]^2 / E[(z-c)+^2] and E[z | z > c] for a standard normal z, tabulated over c.
class NormalTable {
public:
    NormalTable() {
        for (std::size_t i = 0; i < size; ++i) {
            const NormalTail tail(pivot(static_cast<double>(i)));
            shares_[i] = tail.first * tail.first / tail.second;
            centres_[i] = tail.centre;
        }
    }

    // The c at which the first quantity is `share`, by linear interpolation; it falls from 1 to 0.
    Start solve(double share) const {
        const auto place =
            std::lower_bound(shares_.begin() + 1, shares_.end() - 1, share, [](double a, double b) { return a > b; });
        const std::size_t i = static_cast<std::size_t>(place - shares_.begin());
        const double weight = std::clamp((shares_[i - 1] - share) / (shares_[i - 1] - shares_[i]), 0.0, 1.0);
        return {pivot(static_cast<double>(i - 1) + weight), centres_[i - 1] + weight * (centres_[i] - centres_[i - 1])};
    }

private:
    static constexpr std::size_t size = 256;
    static constexpr double lowest = -6, highest = 8;
    static double pivot(double i) { return lowest + (highest - lowest) * i / (size - 1); }
    std::array<double, size> shares_{}, centres_{};
};

inline Start normal_start(double share) {
    static const NormalTable table;
    return table.solve(share);
}

// The c at which E[(z-c)+] is a given mean, tabulated over the leading bits of that mean as a float: found without a
// search, since this is asked once for every vector.
class MeanTable {
public:
    MeanTable() {
        double c = -largest;
        for (std::size_t i = size; i-- > 0;) {
            const double mean = mean_at(i);
            // Newton's method for the logarithm, from the next larger mean.
            for (int round = 0; round < 6; ++round) {
                const NormalTail tail(c);
                c += std::log(tail.first / mean) * tail.first / tail.above;
            }
            const NormalTail tail(c);
            pivots_[i] = static_cast<float>(c);
            centres_[i] = static_cast<float>(tail.centre);
            shares_[i] = static_cast<float>(tail.above);
        }
    }

    HOYER_INLINE float pivot(float mean) const {
        // Far below the average of all entries (and for NaN) the mean of what lies above is that distance.
        return mean < largest ? at(pivots_, mean) : -mean;
    }
    Start solve(double mean) const {
        const float rounded = static_cast<float>(mean);
        return {pivot(rounded), rounded < largest ? at(centres_, rounded) : 0};
    }
    // The c at which P(z > c) is `share`, and the mean there; or the next here, with a larger share.
    double pivot_below(double share) const { return pivots_[place_of(share)]; }
    double mean_above(double share) const { return mean_at(place_of(share)); }

private:
    static constexpr float smallest = 0x1p-48f, largest = 0x1p3f;
    static constexpr int dropped = 20;  // bits of a float: 8 numbers are left of each power of two
    static constexpr std::uint32_t first = std::bit_cast<std::uint32_t>(smallest) >> dropped;
    static constexpr std::size_t size = (std::bit_cast<std::uint32_t>(largest) >> dropped) - first + 1;
    using Column = std::array<float, size>;

    static double mean_at(std::size_t i) {
        return std::bit_cast<float>((static_cast<std::uint32_t>(i) + first) << dropped);
    }
    std::size_t place_of(double share) const {
        return static_cast<std::size_t>(std::lower_bound(shares_.begin(), shares_.end() - 1, share) - shares_.begin());
    }
    static HOYER_INLINE float at(const Column& column, float mean) {
        const auto bits = std::bit_cast<std::uint32_t>(larger(mean, smallest));
        const std::size_t i = (bits >> dropped) - first;
        const float weight = static_cast<float>(bits & ((1u << dropped) - 1)) * (1.0f / (1u << dropped));
        return column[i] + weight * (column[i + 1] - column[i]);
    }
    Column pivots_{}, centres_{}, shares_{};
};

inline const MeanTable& mean_table() {
    static const MeanTable table;
    return table;
}

// The result on a support: base + (x - mean)/scale, which is 0 at x = step. Where `excess` is not positive the support
// is too small for any. Number: double, or a register with one vector per entry.
template <class Number> struct Fit {
    Number excess{};  // the size of the support less K
    Number scale{};   // beta
    Number base{};    // what an entry at the mean gets
    Number step{};    // alpha

    Number value(Number distance_from_mean) const { return base + distance_from_mean / scale; }
};

// What a vector looks like from afar, as far as a start of the search needs it. Number: as in Fit.
template <class Number> struct Overview {
    Number mean, deviation, low, top;
};

// The formulas of the sets, for one vector or for a register of them. Where both norms are given: their ratio rho =
// l1/l2 and its square K. Where l1 alone is: rho is l1, the scale is that of the data, and K counts as 0.
template <class Number> struct NormRatio {
    Number rho, k;
    bool l1_alone = false;

    // `unit` is what the distances here are multiples of, in units of the data.
    HOYER_INLINE Fit<Number> fit(Number count, Number mean, Number spread, Number excess, double unit = 1) const {
        if (l1_alone) {
            const Number scale = splat_like(unit), base = rho / count;
            return {excess, scale, base, mean - scale * base};
        }
        const Number scale = quotient_root(spread * count, excess);
        return {excess, scale, rho / count, mean - scale * rho / count};
    }
    // Newton's step from sums of distances from the pivot and of their squares: for l1^2/l2^2 - K, meaningless for one
    // entry; or for the root of l1, exact where the entries above the pivot are uniform.
    HOYER_INLINE Number newton(Number count, Number sum, Number squares, double unit = 1) const {
        if (l1_alone) {
            const Number mean = sum / count;
            return (mean + mean) * (splat_like(1) - root(rho * splat_like(unit) / sum));
        }
        const Number ratio = sum * sum / squares;
        return (ratio - k) * squares / ((sum + sum) * (count - ratio));
    }
    // Whether the shift lies above a pivot, by the same sums.
    HOYER_INLINE bool reaches(Number sum, Number squares) const {
        return l1_alone ? sum > rho : sum * sum > k * squares;
    }
    // The shift if all n entries were the support.
    HOYER_INLINE Number whole_step(Number n, Number mean, Number deviation, Number excess) const {
        if (l1_alone) return mean - rho / n;
        return mean - deviation * root(n / excess) * rho / root(n);
    }
    // Where to start among n entries: as if they were normal (`normal`, in standard deviations), or their tail uniform.
    HOYER_INLINE Number first_pivot(Number n, const Overview<Number>& seen, Number normal) const {
        const Number as_normal = seen.mean + normal * seen.deviation;
        if (l1_alone) {
            const Number share = rho / n, uniform = seen.top - root((share + share) * (seen.top - seen.low));
            // No entry gets more than l1.
            return larger(smaller(as_normal, uniform), seen.top - rho);
        }
        const Number tail = smaller(splat_like(uniform_tail) * k / n, splat_like(1));
        return smaller(as_normal, seen.top - (seen.top - seen.mean) * tail);
    }
    // How much of a length that the sums are about is lost in their spread, or in what follows from it: digits are lost
    // where `mean` is far from 0, measured against this, squared and times the count.
    HOYER_INLINE Number own_squares(Number count, Number spread, const Fit<Number>& fit) const {
        if (!l1_alone) return spread;
        const Number base = fit.base * fit.scale;
        return spread + count * base * base;
    }

private:
    // The start in a uniform tail is this many K/n of the way from the maximum to the mean.
    static constexpr double uniform_tail = 8.0 / 3;

    static HOYER_INLINE Number splat_like(double value) {
        if constexpr (std::is_same_v<Number, double>)
            return value;
        else
            return splat(static_cast<std::remove_cvref_t<decltype(Number{}[0])>>(value));
    }
    static HOYER_INLINE Number quotient_root(Number a, Number b) {
        const Number quotient = a / b;
        // Near sparseness 0 a quotient may be too large for a float, though its root is not.
        if constexpr (std::is_same_v<Number, double>)
            if (!(quotient < HUGE_VAL)) return std::sqrt(a) / std::sqrt(b);
        return root(quotient);
    }
};

// How the entries of a sample move the shift: by `first` times their distance above it, and `second` times its square,
// less the mean of that, over `slope`.
struct Influence {
    double first, second, mean, slope;
};

// What more largest entries than K get: the first of them, and the others.
struct TiedValues {
    double first, rest;
};

// The closed form of one vector of length n.
//
// p is only Hölder-1/2 in the target where K approaches the support size from below, so every comparison with K and
// every difference d - K is taken in double-double. n - K, not K, is carried: it keeps its digits near sparseness 0.
struct ClosedForm : NormRatio<double> {
    double n;
    DoubleDouble slack;  // n - K
    bool constant;       // sparseness 0: K = n

    ClosedForm(double n, double rho, DoubleDouble slack)
        : NormRatio{rho, (n - slack.hi) - slack.lo}, n(n), slack(slack), constant(!(slack.hi > 0)) {}
    // That of the vectors with this L1 norm.
    static ClosedForm of_l1(double n, double l1) {
        ClosedForm form(n, l1, {n, 0});
        form.l1_alone = true;
        return form;
    }

    // The size of a support less K, exact up to one rounding; for one vector, or for a register of them.
    template <class Number> static HOYER_INLINE Number excess(Number count, Number n, Number slack, Number slack_low) {
        return ((count - n) + slack) + slack_low;
    }
    HOYER_INLINE double excess(double count) const { return excess(count, n, slack.hi, slack.lo); }
    // How many more entries share the maximum than may; negative where it does not matter.
    double excess_of_ties(double ties) const { return l1_alone ? -1 : excess(ties); }
    // Sparseness 1: K = 1.
    bool single() const { return excess(1) == 0; }

    HOYER_INLINE Fit<double> fit(double count, double mean, double spread, double unit = 1) const {
        return NormRatio::fit(count, mean, spread, excess(count), unit);
    }
    double whole_step(double mean, double deviation) const {
        return NormRatio::whole_step(n, mean, deviation, excess(n));
    }
    // For entries with this standard deviation, in units of the data.
    Start start(double deviation) const {
        return l1_alone ? mean_table().solve(rho / n / deviation) : normal_start(k / n);
    }
    // The pivot in [low, top] from where the full search starts, `normal` being the one for normal entries: as above,
    // but without overflow. `below_top` is the next smaller float to `top`.
    double careful_pivot(double normal, double low, double top, double below_top) const {
        if (l1_alone) {
            const double uniform = top - 2 * std::sqrt(rho / n) * std::sqrt(top * 0.5 - low * 0.5);
            return std::min(std::max(std::min(normal, uniform), top - rho), below_top);
        }
        // Where the tail is short, as if uniform, its length follows from K as well: 3/4 of the support size is K.
        const double tail = std::min(1.0, 4 * k / (3 * n));
        return std::min(normal, top * (1 - tail) + low * tail);
    }
    // How far below the start the shift may lie, in standard deviations: less, the more entries are above.
    double start_error(double deviation) const {
        double size = k;
        if (l1_alone) {
            const Start at = start(deviation);
            size = rho / deviation / (at.centre - at.pivot);
        }
        return 0.05 + 1 / std::sqrt(size) + 0.9 * size / n;
    }

    // Whether so few entries of a sample, with this standard deviation, would be in the support for their share of l1
    // that they tell too little. (Both norms have a support of more than K entries, and K can be raised.)
    bool too_few(double size, double fewest, double deviation) const {
        return l1_alone && rho / n < deviation * mean_table().mean_above(fewest / size);
    }
    // The same for a sample of the entries.
    ClosedForm of_sample(double size) const {
        if (l1_alone) return of_l1(size, rho * (size / n));
        const double sampled_k = k * (size / n);
        return {size, std::sqrt(sampled_k), {size - sampled_k, 0}};
    }
    // Whether the K of such a sample is not too small.
    bool fair(double size, double fewest) const { return l1_alone || k * (size / n) >= fewest; }
    // By the delta method for E[t]^2/E[t^2], t = max(x - alpha, 0), with t = scale * p and p of unit norm; or for E[t].
    Influence influence(double scale, double count) const {
        const double a = scale * rho / n, b = scale * scale / n;
        if (l1_alone) return {1, 0, a, count / n};
        const double first = 2 * a / b, second = -a * a / (b * b);
        return {first, second, first * a + second * b, first * (a * a / b - count / n)};
    }

    // Of which the shift is known to a few eps, times what `own_squares` says about the sums.
    double shift_scale(double count, double squares, const Fit<double>& fit) const {
        return l1_alone ? std::sqrt(squares / count) : fit.scale;
    }
    // The L2 norm of the result on a support.
    double second_norm(double count, double spread, const Fit<double>& fit) const {
        return l1_alone ? std::hypot(rho / std::sqrt(count), std::sqrt(spread) / fit.scale) : 1;
    }

    TiedValues tied(double ties) const {
        const double rest = excess(ties) / ties, mean = rho / ties;
        return {mean + std::sqrt((ties - 1) * rest / ties),
                single() ? 0 : std::max(mean - std::sqrt(rest / (ties * (ties - 1))), 0.0)};
    }
};

// The derivative on a support of `count` entries, times y: (y - mean - slope (|p| - p_mean))/beta, from the sums of y
// and of p y over it, y with the signs of p. e and q = |p| - p_mean are orthogonal and span what e and p span, the
// normals of both norms, so nothing is subtracted that is nearly equal unless `spread` = <q, q> is small. Where l1
// binds alone (`with_l2` is false) e is the only normal. Choice: bool, or a register of masks.
template <class Number> struct Derivative {
    Number p_mean, mean, spread, slope;
    Number by_l1, by_l2;  // of the result by its norms, times y

    template <class Choice>
    HOYER_INLINE Derivative(Number l1, Number l2, Number count, Number sum, Number dot, Choice with_l2)
        : p_mean(l1 / count),
          mean(sum / count),
          spread(with_l2 ? l2 * l2 - l1 * p_mean : l2 * l2),
          slope(with_l2 ? (dot - p_mean * sum) / spread : Number{}),
          by_l1(with_l2 ? mean - l1 * slope / count : mean),
          by_l2(with_l2 ? l2 * slope : Number{}) {}
    HOYER_INLINE Number constant() const { return slope * p_mean - mean; }
};

}  // namespace hoyer::inline HOYER_ISA
