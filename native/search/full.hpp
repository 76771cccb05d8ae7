// Algorithm 2's search for the shift alpha: the exact step, and the safeguarded search "auto".
//
// All searches look for one thing, the support {x > alpha*}. Once it is known, mean and spread over it give the result.
#pragma once

#include "closed_form.hpp"
#include "search/support.hpp"

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
    return floor_to<T>(value);
}

// A support, and the shift and scale that it asks for.
template <class T> struct Candidate : Support<T> {
    Fit<double> fit;
    T alpha{};  // the shift, rounded down

    Candidate() = default;
    Candidate(const Support<T>& s, const ClosedForm& form)
        : Support<T>(s), fit(form.fit(s.count, s.mean, s.spread, s.frame.unit())) {
        if (enough())
            alpha =
                far_below(form) ? floor_to<T>(next_below(s.data_mean() - fit.base)) : floor_back<T>(s.frame, fit.step);
        own_squares_ = form.own_squares(s.count, s.spread, fit);
        shift_scale_ = form.shift_scale(s.count, own_squares_, fit);
    }

    bool enough() const { return fit.excess > 0; }
    // It is the right one if no entry lies between its pivot and its shift (the paper's remark on neighbours).
    bool consistent() const { return this->below <= alpha && alpha < this->above; }

    // What an entry would get, in units of the norm.
    double value(T entry) const { return fit.value(this->frame.into(entry) - this->mean); }
    // Whether rounding could hide that the smallest entry of the support does not belong to it.
    bool doubtful() const { return value(this->above) <= 0x1p-45 * fit.base; }

    double blur() const { return this->blur_beside(own_squares_); }
    bool sharp() const { return blur() <= 1; }
    // Before the sums are sharp alpha is known to about 1e-12 of this; a bracket is wider than that.
    double blurred_doubt() const { return 1e-9 * shift_scale_; }
    T blurred_bound() const { return floor_back<T>(this->frame, fit.step - blurred_doubt()); }

private:
    // Far below tiny entries the shift of l1 alone, whose scale is 1, is no number of their frame.
    bool far_below(const ClosedForm& form) const { return form.l1_alone && std::isinf(fit.step); }

    double own_squares_ = 0, shift_scale_ = 0;
};

// One vector and its closed form.
template <bool Signed, class T> class Search : public Evaluator<Signed, T> {
    using Limits = std::numeric_limits<T>;
    using Base = Evaluator<Signed, T>;
    using Base::seen_, Base::n_;

public:
    using Base::evaluations;

    Search(const T* x, std::size_t n, const ClosedForm& form, const Survey<T>& seen, const Summed<T>* summed = nullptr)
        : Base(x, n, seen, summed), form_(form), top_(next_below(seen.max)) {}

    Support<T> run(Solver solver) {
        if (solver != Solver::automatic) return paper(solver);
        evaluations = 1;  // the survey
        return automatic();
    }

    // The support of alpha* if alpha* is not below `low` and nothing is in doubt; otherwise one with count 0.
    Candidate<T> attempt(T pivot, double reference, T low) {
        Candidate<T> s = climb(pivot, reference, low);
        if (!certain(s, low)) s.count = 0;
        return s;
    }

    // The same where the pivot is known to be right, unless rounding deceived whoever says so: it is looked at once.
    Candidate<T> confirm(T pivot, double reference, T low) {
        Candidate<T> s = candidate(pivot, reference);
        if (!certain(s, low)) s = attempt(pivot, reference, low);
        return s;
    }

private:
    Candidate<T> candidate(T pivot, double reference) { return {this->evaluate(pivot, reference), form_}; }
    Candidate<T> sharp_candidate(T pivot, double reference) { return {this->settle(pivot, reference), form_}; }
    Candidate<T> sharpened(const Candidate<T>& s) { return {Base::sharpened(s), form_}; }

    static bool certain(const Candidate<T>& s, T low) {
        return s.enough() && s.sharp() && s.consistent() && s.alpha >= low && !s.doubtful();
    }

    // A support that would give the largest entry it lacks more than rounding is too small by its own account: only
    // rounding put that entry below alpha, and it belongs to the support.
    Candidate<T> widened(const Candidate<T>& s) {
        if (!(s.below > -Limits::infinity() && s.value(s.below) > 0x1p-49 * s.fit.base)) return s;
        return sharp_candidate(next_below(s.below), s.data_mean());
    }

    // A support whose smallest entries are doubtful, against the one without them: where K is a rounding error below a
    // number of near-ties the two differ by the root of that error. The smaller support is right if its own exact step,
    // a lower bound of alpha*, is not below any entry it lacks; that comparison has digits to spare.
    Candidate<T> challenged(Candidate<T> s) {
        while (!this->summed_ && s.doubtful()) {
            const double noise = 0x1p-44 * s.fit.base * s.fit.scale;
            const T pivot = std::max(s.above, floor_back<T>(s.frame, s.fit.step + noise));
            const Candidate<T> smaller = sharp_candidate(pivot, s.data_mean());
            if (!smaller.enough() || smaller.alpha < smaller.below) return s;
            if (!smaller.consistent()) return climb(smaller.alpha, smaller.data_mean(), smaller.below);
            s = smaller;
        }
        return s;
    }

    // The geometric mean of the distances of both ends from the maximum, below it.
    T halfway_to_maximum(T low, T high) const {
        const double top = seen_.max * 0.5, nearest = std::max(top - high * 0.5, top - top_ * 0.5);
        return static_cast<T>(2 * (top - std::sqrt(top - low * 0.5) * std::sqrt(nearest)));
    }

    // Where `climb` is: low <= alpha* < high, up to rounding.
    struct Position {
        T pivot, low, high;
        double reference;
        Candidate<T> source{};  // sharp, and `pivot` is its alpha; otherwise its count is 0

        void go(T to) {
            pivot = to;
            source.count = 0;
        }
    };

    // The full search behind "auto": a start from mean and standard deviation, then `climb`. Called with ties < K < n.
    Candidate<T> automatic() {
        const double n = static_cast<double>(n_);
        const T low = seen_.min, high = seen_.max;
        Support<T> whole;
        whole.pivot = -Limits::infinity();
        whole.frame = Frame{static_cast<double>(seen_.first), 1, 1};
        whole.set({n, seen_.sum.value(), seen_.squares.value()}, -Limits::infinity(), low);
        Candidate<T> all(whole, form_);
        // A frame chosen blindly may have overflowed, underflowed or lost the spread.
        if (!(all.blur() <= 1024) || !(all.spread > 0x1p-900 && all.spread < 0x1p900))
            all = candidate(all.pivot, low * 0.5 + high * 0.5);
        const double margin = all.frame.into(low) + 1e-6 * (all.frame.into(high) - all.frame.into(low));
        if (all.fit.step <= margin) {
            // The whole vector may be the support: decide that from sharp sums.
            all = sharpened(all);
            if (all.alpha < low) return challenged(all);
        }
        const double deviation = std::sqrt(all.spread / n);
        const Start start = form_.start(all.frame.length(deviation));
        const double guess = all.frame.back(all.mean + start.pivot * deviation);
        const double centre = all.frame.back(all.mean + start.centre * deviation);
        T pivot = static_cast<T>(form_.careful_pivot(guess, low, high, top_));
        if (!(pivot >= low && pivot < high)) pivot = low;
        return climb(pivot, std::min(centre, static_cast<double>(high)), low);
    }

    // Invariant, up to rounding: low <= alpha* < high. The exact step from any pivot with count > K is a lower bound;
    // from below it climbs through nested supports, accelerated by Newton's step; from above it is the next pivot.
    //
    // `patience` evaluations are spent on clever pivots; after that only the number of floats left is bisected, which
    // ends with low and high next to each other at the latest.
    Candidate<T> climb(T pivot, double reference, T low) {
        constexpr long patience = 40;
        Position at{pivot, low, seen_.max, reference};
        for (long spent = 0;; ++spent) {
            Candidate<T> s = candidate(at.pivot, at.reference);
            if (s.enough()) {
                sharpen_to_decide(s, at);
                if (s.consistent()) return challenged(s);
                // The exact step of `source` is a lower bound, and the pivot is above alpha*: only rounding is left
                // between.
                if (at.source.count > 0 && s.alpha <= at.pivot) return challenged(at.source);
                rise(s, at);
            } else {
                fall(s, at);
            }
            // The guard: a search that is not over by now bisects at every second evaluation: the distance from the
            // maximum on a logarithmic scale (it halves geometric families), now and then the number of floats left.
            if (spent >= 5 && (spent % 2 == 1 || spent > patience)) {
                at.go(spent % 8 == 7 || spent > patience ? halfway(at.low, at.high)
                                                         : halfway_to_maximum(at.low, at.high));
                // Far from everything known the entries that matter are as likely near the maximum as anywhere.
                at.reference = seen_.max;
            }
            if (!(at.pivot >= at.low && at.pivot < at.high)) at.go(at.low);
            if (at.pivot == s.pivot)
                return challenged(s.enough() ? widened(sharpened(s)) : sharp_candidate(at.low, at.reference));
        }
    }

    // Sharpens the support where a decision depends on it.
    void sharpen_to_decide(Candidate<T>& s, const Position& at) {
        if (s.blur() > 1024) s = sharpened(s);
        // About to decide, or unable to raise `low` without more digits.
        if (!s.sharp() && (s.consistent() || (at.source.count > 0 && s.alpha <= at.pivot) ||
                           (s.alpha > at.pivot && s.blurred_bound() <= at.low)))
            s = sharpened(s);
    }

    // Enough entries are above the pivot: on to the exact step, or to Newton's where that is further up.
    void rise(const Candidate<T>& s, Position& at) const {
        const bool sharp = s.sharp();
        at.low = std::max(at.low, std::min(sharp ? s.alpha : s.blurred_bound(), next_below(at.high)));
        const double step = s.fit.step + (sharp ? 0 : s.blurred_doubt());
        if (step <= s.frame.into(at.pivot)) at.high = std::min(at.high, at.pivot);
        at.reference = s.data_mean();
        const T newton = s.alpha > at.pivot ? newton_from(s) : s.alpha;
        const bool further = newton > s.alpha && newton < at.high;
        at.go(further ? newton : s.alpha);
        if (sharp && !further) at.source = s;
    }

    // Too few entries are above the pivot: alpha* lies below the next one. Where rounding has put `low` there already,
    // the support that just includes it is the answer.
    void fall(const Candidate<T>& s, Position& at) const {
        at.high = std::min(at.high, s.below);
        if (!(at.low < at.high)) at.low = next_below(at.high);
        const T newton = newton_from(s);
        const bool inside = s.count > 1 && newton > at.low && newton < at.high;
        at.go(inside ? newton : static_cast<T>(at.low * 0.5 + at.high * 0.5));
    }

    T newton_from(const Candidate<T>& s) const {
        const double step = form_.newton(s.count, s.first_norm(), s.second_norm_squared(), s.frame.unit());
        return static_cast<T>(s.pivot + s.frame.length(step));
    }
    Support<T> paper(Solver solver);
    T paper_step(Solver solver, const Candidate<T>& s, T low, T high) const;

    const ClosedForm& form_;
    T top_;  // the largest float below the maximum
};

}  // namespace hoyer::inline HOYER_ISA
