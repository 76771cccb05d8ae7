// Algorithm 2's search for the shift alpha: the exact step, the safeguarded search "auto", and the paper's four
// solvers.
//
// All of them look for one thing, the support {x > alpha*}. Once it is known, mean and spread over it give the result.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "jobs.hpp"
#include "search/moments.hpp"
#include "search/start.hpp"
#include "target.hpp"

namespace hoyer::inline HOYER_ISA {

// The largest float of type T that is not above reference + t/scale of the frame.
template <class T> T floor_back(const Frame& frame, double t) {
    double step = t / frame.scale;
    // Among subnormal numbers even a division by a power of two rounds.
    if (step * frame.scale > t) step = next_below(step);
    const DoubleDouble sum = two_sum(frame.reference * frame.halving, step);
    double value = sum.hi;
    if (sum.lo < 0) value = next_below(value);
    value /= frame.halving;
    T result = static_cast<T>(value);
    if (result > value) result = next_below(result);
    return result;
}

// The support above a pivot, with mean and spread taken from its sums (all lengths in the units of the frame).
template <class T> struct Support {
    T pivot{};
    Frame frame;
    double count = 0;
    T below{}, above{};
    double mean = 0;      // from the reference
    double spread = 0;    // sum of squares about the mean
    bool coarse = false;  // the frame is too wide for the support: its differences vanish when squared

    // Digits are lost where the reference is far from the mean, measured in standard deviations, squared.
    double blur() const {
        if (coarse) return HUGE_VAL;
        return spread > 0 ? count * mean * mean / spread : (mean == 0 ? 0 : HUGE_VAL);
    }
    bool sharp() const { return blur() <= 1; }

    // The closed form on this support (fact 2); it needs count > K.
    double scale(const Target& target) const {
        const double excess = target.excess(count), squared = spread * count / excess;
        // Near sparseness 0 the quotient may be too large for a float, though its root is not.
        return squared < HUGE_VAL ? std::sqrt(squared) : std::sqrt(spread * count) / std::sqrt(excess);
    }
    double exact_step(const Target& target) const { return mean - scale(target) * target.rho / count; }

    // sum(x - pivot) and sum (x - pivot)^2 over the support: l1(alpha) and l2(alpha)^2 of the paper.
    double first_norm() const { return count * (mean - frame.into(pivot)); }
    double second_norm_squared() const {
        const double distance = mean - frame.into(pivot);
        return spread + count * distance * distance;
    }
};

// Newton's step for l1^2/l2^2 - K at the pivot of s, in data units; meaningless where count <= 1.
template <class T> double newton_sqr_step(const Support<T>& s, const Target& target) {
    const double l1 = s.first_norm(), l2 = s.second_norm_squared();
    const double ratio = l1 * l1 / l2;
    return s.frame.length((ratio - target.k) * l2 / (2 * l1 * (s.count - ratio)));
}

// Whether rounding could hide that the smallest entry of the support does not belong to it.
template <class T> bool doubtful(const Support<T>& s, const Target& target, double scale) {
    const double base = target.rho / s.count;
    return base + (s.frame.into(s.above) - s.mean) / scale <= 0x1p-45 * base;
}
template <class T> bool doubtful(const Support<T>& s, const Target& target) {
    return doubtful(s, target, s.scale(target));
}

// Entries that were summed beforehand and take part in every evaluation; the vector searched holds none of them.
template <class T> struct Base {
    Frame frame;
    double count = 0, sum = 0, sum_of_squares = 0;
    T low{};    // every entry that is neither here nor in the vector is at most this
    T above{};  // every entry here is at least this
};

// One vector, its target, and the evaluations of Algorithm 1 spent on it.
template <bool Signed, class T> class Search {
    using Limits = std::numeric_limits<T>;

public:
    Search(const T* x, std::size_t n, const Target& target, const Survey<T>& seen, const Base<T>* base = nullptr)
        : x_(x), n_(n), target_(target), seen_(seen), base_(base), top_(next_below(seen.max)) {}

    Support<T> run(Solver solver) {
        if (solver != Solver::automatic) return paper(solver);
        evaluations = 1;  // the survey
        return automatic();
    }

    // The support above `pivot`, its sums about `reference`.
    Support<T> evaluate(T pivot, double reference) {
        ++evaluations;
        return look(pivot, reference, std::max(pivot, seen_.min));
    }

    // The support of alpha* if alpha* is not below `low` and nothing is in doubt; otherwise one with count 0.
    Support<T> attempt(T pivot, double reference, T low) {
        const Support<T> s = climb(pivot, reference, low, seen_.max);
        return certain(s, low) ? s : Support<T>{};
    }

    // The same where the pivot is known to be right, unless rounding deceived whoever says so: it is looked at once.
    Support<T> confirm(T pivot, double reference, T low) {
        const Support<T> s = evaluate(pivot, reference);
        return certain(s, low) ? s : attempt(pivot, reference, low);
    }

    // The support above `pivot`, sharp.
    Support<T> settle(T pivot, double reference) { return sharpened(evaluate(pivot, reference)); }

    long evaluations = 0;

private:
    // `least` bounds the entries above the pivot from below: it sizes the frame.
    Support<T> look(T pivot, double reference, T least) const {
        Support<T> s;
        s.pivot = pivot;
        if (base_) {
            s.frame = base_->frame;
            const Moments<T> m = moments<Signed>(x_, n_, pivot, s.frame);
            return fill(s, m.count + base_->count, m.sum + base_->sum, m.sum_of_squares + base_->sum_of_squares,
                        std::max(m.below, base_->low), std::min(m.above, base_->above));
        }
        s.frame = Frame::about<T>(reference, least, seen_.max);
        const Moments<T> m = moments<Signed>(x_, n_, pivot, s.frame);
        if (m.above < seen_.max) s.coarse = s.frame.into(seen_.max) - s.frame.into(m.above) < 1e-120;
        return fill(s, m.count, m.sum, m.sum_of_squares, m.below, m.above);
    }

    static Support<T> fill(Support<T> s, double count, double sum, double squares, T below, T above) {
        s.count = count;
        s.below = below;
        s.above = above;
        s.mean = count > 0 ? sum / count : 0;
        s.spread = std::max(squares - s.mean * sum, 0.0);
        return s;
    }

    // The same support with its sums about its mean, so that nothing is lost in the spread.
    Support<T> sharpened(Support<T> s) {
        // Two rounds are enough: the first gets the mean to within rounding of the reference.
        // Sums made beforehand cannot be moved.
        for (int round = 0; round < 2 && !s.sharp() && !base_; ++round) {
            const double mean = s.frame.back(s.mean);
            ++evaluations;
            s = look(s.pivot, std::clamp<double>(mean, s.above, seen_.max), s.above);
        }
        return s;
    }

    // Where the support of `s` says alpha is, rounded down; only if count > K.
    T lower_bound(const Support<T>& s) const { return floor_back<T>(s.frame, s.exact_step(target_)); }

    // Before the sums are sharp alpha is known to about 1e-12 beta; a bracket leaves more room than that.
    double blurred_doubt(const Support<T>& s) const { return 1e-9 * s.scale(target_); }
    T blurred_bound(const Support<T>& s) const {
        return floor_back<T>(s.frame, s.exact_step(target_) - blurred_doubt(s));
    }

    bool certain(const Support<T>& s, T low) const {
        const double excess = target_.excess(s.count);
        if (!(excess > 0) || !s.sharp()) return false;
        const double scale = s.scale(target_);
        const T alpha = floor_back<T>(s.frame, s.mean - scale * target_.rho / s.count);
        return consistent(s, alpha) && alpha >= low && !doubtful(s, target_, scale);
    }

    // The support at hand is the right one if no entry lies between its pivot and its alpha (Remark on neighbours).
    static bool consistent(const Support<T>& s, T alpha) { return s.below <= alpha && alpha < s.above; }

    // A support that would give the largest entry it lacks more than rounding is too small by its own account: only
    // rounding put that entry below alpha, and it belongs to the support.
    Support<T> widened(const Support<T>& s) {
        const double base = target_.rho / s.count;
        const double lacking = base + (s.frame.into(s.below) - s.mean) / s.scale(target_);
        if (!(s.below > -Limits::infinity() && lacking > 0x1p-49 * base)) return s;
        return settle(next_below(s.below), s.frame.back(s.mean));
    }

    // A support whose smallest entries are doubtful, against the one without them: where K is a rounding error below a
    // number of near-ties the two differ by the root of that error. The smaller support is right if its own exact step,
    // a lower bound of alpha*, is not below any entry it lacks; that comparison has room to spare.
    Support<T> challenged(Support<T> s) {
        while (!base_ && doubtful(s, target_)) {
            const double noise = 0x1p-44 * (target_.rho / s.count) * s.scale(target_);
            const T pivot = std::max(s.above, floor_back<T>(s.frame, s.exact_step(target_) + noise));
            const Support<T> smaller = settle(pivot, s.frame.back(s.mean));
            if (!(target_.excess(smaller.count) > 0)) return s;
            const T alpha = lower_bound(smaller);
            if (alpha < smaller.below) return s;
            if (!consistent(smaller, alpha))
                return climb(alpha, smaller.frame.back(smaller.mean), smaller.below, seen_.max);
            s = smaller;
        }
        return s;
    }

    // ---- the ordered-integer representation of floats: bisection there halves the number of candidates ----
    using Bits = std::conditional_t<sizeof(T) == 8, std::int64_t, std::int32_t>;
    static Bits order(T value) {
        const Bits bits = std::bit_cast<Bits>(value);
        return bits < 0 ? least_rank() - bits : bits;
    }
    static constexpr Bits least_rank() { return std::numeric_limits<Bits>::min(); }
    static T unorder(Bits rank) { return std::bit_cast<T>(rank < 0 ? static_cast<Bits>(least_rank() - rank) : rank); }
    static T halfway(T low, T high) {
        const Bits a = order(low), b = order(high);
        return unorder((a & b) + ((a ^ b) >> 1));
    }
    // The geometric mean of the distances of both ends from the maximum, below it.
    T halfway_to_maximum(T low, T high) const {
        const double top = seen_.max * 0.5, nearest = std::max(top - high * 0.5, top - top_ * 0.5);
        return static_cast<T>(2 * (top - std::sqrt(top - low * 0.5) * std::sqrt(nearest)));
    }

    Support<T> automatic();
    Support<T> climb(T pivot, double reference, T low, T high, long patience = 40);
    Support<T> paper(Solver solver);

    const T* x_;
    std::size_t n_;
    const Target& target_;
    const Survey<T>& seen_;
    const Base<T>* base_;
    T top_;  // the largest float below the maximum
};

// The full search behind "auto": a start from mean and standard deviation, then `climb`. Called with ties < K < n.
template <bool Signed, class T> Support<T> Search<Signed, T>::automatic() {
    const double n = static_cast<double>(n_);
    const T low = seen_.min, high = seen_.max;
    Support<T> all = fill({}, n, seen_.sum, seen_.sum_of_squares, -Limits::infinity(), low);
    all.pivot = -Limits::infinity();
    all.frame = Frame{seen_.first, 1, 1};
    // A frame chosen blindly may have overflowed, underflowed or lost the spread.
    if (!(all.blur() <= 1024) || !(all.spread > 0x1p-900 && all.spread < 0x1p900))
        all = evaluate(all.pivot, low * 0.5 + high * 0.5);
    const double margin = all.frame.into(low) + 1e-6 * (all.frame.into(high) - all.frame.into(low));
    if (all.exact_step(target_) <= margin) {
        // The whole vector may be the support: decide that from sharp sums.
        all = sharpened(all);
        if (lower_bound(all) < low) return challenged(all);
    }
    const double deviation = std::sqrt(all.spread / n);
    const Start start = normal_start(target_.k / n);
    const double guess = all.frame.back(all.mean + start.pivot * deviation);
    const double centre = all.frame.back(all.mean + start.centre * deviation);
    // Where the tail is short, as if uniform, its length follows from K as well: 3/4 of the support size is K.
    const double tail = std::min(1.0, 4 * target_.k / (3 * n));
    T pivot = static_cast<T>(std::min(guess, high * (1 - tail) + low * tail));
    if (!(pivot >= low && pivot < high)) pivot = low;
    return climb(pivot, std::min(centre, static_cast<double>(high)), low, high);
}

// Invariant, up to rounding: low <= alpha* < high. The exact step from any pivot with count > K is a lower bound (fact
// 3); from below it climbs through nested supports, accelerated by Newton's step; from above it is the next pivot.
//
// `patience` evaluations are spent on clever pivots; after that only the number of floats left is bisected, which ends
// with low and high next to each other at the latest.
template <bool Signed, class T>
Support<T> Search<Signed, T>::climb(T pivot, double reference, T low, T high, long patience) {
    Support<T> source;  // sharp, and `pivot` is its exact step; otherwise its count is 0
    for (long spent = 0;; ++spent) {
        Support<T> s = evaluate(pivot, reference);
        Support<T> next_source;
        T next;
        if (target_.excess(s.count) > 0) {
            if (s.blur() > 1024) s = sharpened(s);
            T alpha = lower_bound(s);
            if (!s.sharp() && (consistent(s, alpha) || (source.count > 0 && alpha <= pivot) ||
                               (alpha > pivot && blurred_bound(s) <= low))) {
                // About to decide, or unable to raise `low` without more digits.
                s = sharpened(s);
                alpha = lower_bound(s);
            }
            if (consistent(s, alpha)) return challenged(s);
            // The exact step of `source` is a lower bound, and the pivot is above alpha*: only rounding is left
            // between.
            if (source.count > 0 && alpha <= pivot) return challenged(source);
            const bool sharp = s.sharp();
            const T bound = sharp ? alpha : blurred_bound(s);
            low = std::max(low, std::min(bound, next_below(high)));
            const double step = s.exact_step(target_) + (sharp ? 0 : blurred_doubt(s));
            if (step <= s.frame.into(pivot)) high = std::min(high, pivot);
            next = alpha;
            if (sharp) next_source = s;
            if (alpha > pivot) {
                const T newton = static_cast<T>(pivot + newton_sqr_step(s, target_));
                if (newton > alpha && newton < high) {
                    next = newton;
                    next_source = {};
                }
            }
            reference = s.frame.back(s.mean);
        } else {
            // Too few entries above the pivot: alpha* lies below the next one. Where rounding has put `low` there
            // already, the support that just includes it is the answer.
            high = std::min(high, s.below);
            if (!(low < high)) low = next_below(high);
            const T newton = static_cast<T>(pivot + newton_sqr_step(s, target_));
            next = (s.count > 1 && newton > low && newton < high) ? newton : static_cast<T>(low * 0.5 + high * 0.5);
        }
        // The guard: a search that is not over by now bisects at every second evaluation: the distance from the maximum
        // on a logarithmic scale (it halves geometric families), now and then the number of floats left.
        if (spent >= 5 && (spent % 2 == 1 || spent > patience)) {
            next = spent % 8 == 7 || spent > patience ? halfway(low, high) : halfway_to_maximum(low, high);
            next_source = {};
            // Far from everything known the entries that matter are as likely near the maximum as anywhere.
            reference = seen_.max;
        }
        if (!(next >= low && next < high)) {
            next = low;
            next_source = {};
        }
        if (next == pivot)
            return challenged(target_.excess(s.count) > 0 ? widened(sharpened(s)) : settle(low, reference));
        source = next_source;
        pivot = next;
    }
}

// Algorithm 2 with bracket, start and step of the paper. Negative entries are shifted away first: the search then
// starts at min x instead of 0. Called with ties < K < n.
template <bool Signed, class T> Support<T> Search<Signed, T>::paper(Solver solver) {
    constexpr long limit = 200;
    const T zero = std::min(seen_.min, T(0));
    // Looks that Algorithm 1 does not make (sharpening, the second largest entry) are not counted.
    const auto uncounted = [this](auto&& work) {
        const long counted = evaluations;
        auto result = work();
        evaluations = counted;
        return result;
    };
    const double middle = seen_.min * 0.5 + seen_.max * 0.5;
    const T start = seen_.min > zero ? zero : next_below(zero);
    ++evaluations;
    // The scan at alpha = 0 decides between decreasing and increasing sparseness; it must count all n entries.
    const Support<T> all = uncounted([&] { return settle(start, middle); });
    if (lower_bound(all) < zero) return uncounted([&] { return challenged(all); });

    T low = zero;
    T high = look(top_, seen_.max, top_).below;
    T alpha = low + (high - low) / 2;
    if (!std::isfinite(alpha)) alpha = low / 2 + high / 2;
    double reference = middle;
    // Invariant: low <= alpha* < high.
    while (true) {
        Support<T> s = evaluate(alpha, reference);
        const bool enough = target_.excess(s.count) > 0;
        if (enough) {
            if (s.blur() > 1024 || consistent(s, lower_bound(s))) s = uncounted([&] { return sharpened(s); });
            const T exact = lower_bound(s);
            // Below min x no entry is a neighbour: the paper puts x_j = 0 there.
            if (std::max(s.below, zero) <= exact && exact < s.above) return uncounted([&] { return challenged(s); });
        }
        reference = s.frame.back(s.mean);
        const double l1 = s.first_norm(), l2 = std::sqrt(s.second_norm_squared());
        const double psi = l1 / l2 - target_.rho;
        // The sign of psi is that of exact - alpha, which rounding does not spoil.
        const bool below = enough && lower_bound(s) > alpha;
        (below ? low : high) = alpha;

        const double slope = (l1 * l1 / (l2 * l2) - s.count) / l2;
        const T centre = std::isfinite(high - low) ? low + (high - low) / 2 : low / 2 + high / 2;
        T next = centre;
        if (solver != Solver::bisection) {
            double step = -psi / slope;
            if (solver == Solver::newton_sqr) {
                step = -(l1 * l1 / (l2 * l2) - target_.k) / (2 * (l1 / l2) * slope);
            } else if (solver == Solver::halley) {
                const double curvature = 3 * slope * l1 / (l2 * l2);
                const double h = 1 - psi * curvature / (2 * slope * slope);
                step /= std::max(0.5, std::min(1.5, h));
            }
            next = static_cast<T>(alpha + s.frame.length(step));
            if (!(next >= low && next <= high)) next = centre;
        }
        if (evaluations >= limit || next == alpha) return climb(low, reference, low, seen_.max);
        alpha = next;
    }
}

}  // namespace hoyer::inline HOYER_ISA
