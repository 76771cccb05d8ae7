// What a set adds to the search: from count, mean and spread of the entries above a pivot to shift and scale.
//
// The set here has both norms given, with l2 = 1. The searches ask for it once per pass over the entries, never for an
// entry. They rely on one property: whatever the pivot, the shift of its support is a lower bound of the shift looked
// for, and it is that shift if no entry lies between it and the pivot.
#pragma once

#include <numbers>

#include "simd/sums.hpp"

namespace hoyer::inline HOYER_ISA {

// In standard deviations from the mean: the pivot at which a normal vector has the wanted ratio of norms, and the mean
// of the entries above it.
struct Start {
    double pivot, centre;
};

// E[(z-c)+]^2 / E[(z-c)+^2] and E[z | z > c] for a standard normal z, tabulated over c.
class NormalTable {
public:
    NormalTable() {
        for (std::size_t i = 0; i < size; ++i) {
            const double c = pivot(static_cast<double>(i));
            const double density = std::exp(-0.5 * c * c) / std::sqrt(2 * std::numbers::pi);
            const double above = 0.5 * std::erfc(c / std::sqrt(2.0));
            const double first_moment = density - c * above;
            const double second_moment = (1 + c * c) * above - c * density;
            shares_[i] = first_moment * first_moment / second_moment;
            centres_[i] = density / above;
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

// The result on a support: base + (x - mean)/scale, which is 0 at x = step. Where `excess` is not positive the support
// is too small for any. Number: double, or a register with one vector per entry.
template <class Number> struct Fit {
    Number excess{};  // the size of the support less K
    Number scale{};   // beta
    Number base{};    // what an entry at the mean gets
    Number step{};    // alpha

    Number value(Number distance_from_mean) const { return base + distance_from_mean / scale; }
};

// The ratio of norms rho = l1/l2 and its square K, and the formulas that need no more.
template <class Number> struct NormRatio {
    Number rho, k;

    HOYER_INLINE Fit<Number> fit(Number count, Number mean, Number spread, Number excess) const {
        const Number scale = quotient_root(spread * count, excess);
        return {excess, scale, rho / count, mean - scale * rho / count};
    }
    // Newton's step for l1^2/l2^2 - K, from sums of distances from the pivot and of their squares. Meaningless for one
    // entry.
    HOYER_INLINE Number newton(Number count, Number sum, Number squares) const {
        const Number ratio = sum * sum / squares;
        return (ratio - k) * squares / ((sum + sum) * (count - ratio));
    }
    // The shift if all n entries were the support.
    HOYER_INLINE Number whole_step(Number n, Number mean, Number deviation, Number excess) const {
        return mean - deviation * root(n / excess) * rho / root(n);
    }

private:
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

    // The size of a support less K, exact up to one rounding; for one vector, or for a register of them.
    template <class Number> static HOYER_INLINE Number excess(Number count, double n, Number slack, Number slack_low) {
        return ((count - n) + slack) + slack_low;
    }
    HOYER_INLINE double excess(double count) const { return excess(count, n, slack.hi, slack.lo); }
    // Sparseness 1: K = 1.
    bool single() const { return excess(1) == 0; }

    HOYER_INLINE Fit<double> fit(double count, double mean, double spread) const {
        return NormRatio::fit(count, mean, spread, excess(count));
    }
    double whole_step(double mean, double deviation) const {
        return NormRatio::whole_step(n, mean, deviation, excess(n));
    }
    Start start() const { return normal_start(k / n); }

    // The same for a sample of the entries, or for one with a larger K where that would be less than `fewest`.
    ClosedForm of_sample(double size, double fewest) const {
        const double sampled_k = std::max(k * (size / n), fewest);
        return {size, std::sqrt(sampled_k), {size - sampled_k, 0}};
    }
    // By the delta method for E[t]^2/E[t^2], t = max(x - alpha, 0); t = scale * p with p of unit norm.
    Influence influence(double scale, double count) const {
        const double a = scale * rho / n, b = scale * scale / n;
        const double first = 2 * a / b, second = -a * a / (b * b);
        return {first, second, first * a + second * b, first * (a * a / b - count / n)};
    }

    TiedValues tied(double ties) const {
        const double rest = excess(ties) / ties, mean = rho / ties;
        return {mean + std::sqrt((ties - 1) * rest / ties),
                single() ? 0 : std::max(mean - std::sqrt(rest / (ties * (ties - 1))), 0.0)};
    }
};

// The derivative on a support of `count` entries, times y: (y - mean - slope (|p| - p_mean))/beta, from the sums of y
// and of p y over it, y with the signs of p. e and q = |p| - p_mean are orthogonal and span what e and p span, the
// normals of both norms, so nothing is subtracted that is nearly equal unless `spread` = <q, q> is small.
template <class Number> struct Derivative {
    Number p_mean, mean, spread, slope;
    Number by_l1, by_l2;  // of the result by its norms, times y

    HOYER_INLINE Derivative(Number l1, Number l2, Number count, Number sum, Number dot)
        : p_mean(l1 / count),
          mean(sum / count),
          spread(l2 * l2 - l1 * p_mean),
          slope((dot - p_mean * sum) / spread),
          by_l1(mean - l1 * slope / count),
          by_l2(l2 * slope) {}
    HOYER_INLINE Number constant() const { return slope * p_mean - mean; }
};

}  // namespace hoyer::inline HOYER_ISA
