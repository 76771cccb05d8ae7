// One vector: from target to solution (Algorithm 2 with every special case).
#pragma once

#include "search/paper.hpp"
#include "search/sampled.hpp"

namespace hoyer::inline HOYER_ISA {

// <p, x> = rho * mean(x) + deviation over the support, p of unit norm: no terms of opposite sign for x >= 0, and no
// overflow. Negative ones count as 0.
inline Norm inner_product(double rho, const Frame& frame, double mean, double deviation) {
    const double base = frame.reference * frame.halving;
    const double size = std::max({std::fabs(base), std::fabs(mean / frame.scale), deviation / frame.scale});
    double power = 1;
    // (Half the least number is 0 as a size, and counts.)
    if (!(size > 1e-150 && size < 1e150) && (base != 0 || mean != 0 || deviation > 0))
        power = std::ldexp(1.0, std::isfinite(size) ? std::clamp(std::ilogb(size), -1022, 1021) : 1021);
    const double units = frame.scale * power;
    const double fraction = rho * (base / power + mean / units) + deviation / units;
    return {std::max(fraction, 0.0), power / frame.halving};
}

// length / (frame's units) / norm, where only the result need be a float.
inline double scale_in_data_units(double length, const Frame& frame, const Norm& norm) {
    const double plain = length / norm.fraction;
    if (frame.plain() && norm.power == 1 && plain > 1e-300 && plain < 1e300) return plain;
    int exponents[4];
    const double quotient = std::frexp(length, &exponents[0]) / std::frexp(norm.fraction, &exponents[1]);
    std::frexp(frame.scale * frame.halving, &exponents[2]);
    std::frexp(norm.power, &exponents[3]);
    // Both are powers of two: frexp gives 0.5 and an exponent one too large for each. 0 would say that there is no
    // scale.
    return std::max(std::ldexp(quotient, exponents[0] - exponents[1] - (exponents[2] - 1) - (exponents[3] - 1)),
                    std::numeric_limits<double>::denorm_min());
}

template <bool Signed, class T> class Projector {
public:
    Projector(const T* x, std::size_t n, const ClosedForm& form, double l2, const Request& request)
        : x_(x), n_(n), form_(form), request_(request) {
        result_.norm = {l2, 1};
    }

    Ahead ahead;
    // If set: the vector with its mask, which `x` is not asked for. It is packed where that is needed.
    MaskedVector<T>* masked = nullptr;

    // If set: the support, found by whoever looked at several vectors at once, and the reads that took.
    const Support<T>* known = nullptr;
    double reads = 0;

    // Where both norms are given: solves with unit norm first and scales afterwards.
    const Solution<T>& solve() {
        // An impossible target gives NaN.
        if (std::isnan(form_.rho) || std::isnan(result_.norm.fraction)) return result_;
        // Whoever looked at several vectors at once may have needed that.
        if (!automatic() || request_.only_increase || (masked && masked->packed)) pack();
        if (request_.at_most) return bounded();
        if (request_.norm == NormRule::keep) {
            const Norms size = read_norms<false>();
            if (!std::isfinite(size.sum)) return not_finite();
            if (size.count == 0) return zero();
            result_.norm = {size.l2(), size.unit};
        }
        if (request_.only_increase) {
            const Norms size = read_norms<!Signed>();
            if (!std::isfinite(size.sum)) return not_finite();
            if (size.count > 0 && sparse_enough(size)) return direction(size);
            if (!Signed && size.count == 0) {
                const Survey<T> seen = survey<Signed>(x_, n_);
                if (automatic()) result_.evaluations += 1;
                if (!seen.finite()) return not_finite();
                if (seen.min < 0) return one_hot(seen);
            }
        }
        if (!find()) return not_finite();
        if (result_.norm.fraction == 0) return zero();
        set_norms();
        return result_;
    }

private:
    bool automatic() const { return request_.solver == Solver::automatic; }

    // Leaves nothing but the entries that count.
    void pack() {
        if (masked) x_ = masked->pack();
        masked = nullptr;
    }

    // What the record says of a solution found by `find`.
    void set_norms() {
        result_.l2 = result_.norm.value() * second_norm_;
        result_.l1 = form_.rho * result_.norm.fraction * result_.norm.power;
        if (form_.l1_alone) {
            result_.active = static_cast<double>(Active::l1);
            result_.scale = 1;
        } else if (result_.gain > 0) {
            result_.scale = scale_in_data_units(1 / result_.gain, result_.frame, result_.norm);
        }
    }

    // Upper bounds for the norms: of the vectors within them, convex sets, one is nearest. Which bounds bind is only in
    // doubt where either way leads to the same up to rounding.
    const Solution<T>& bounded() {
        const bool one_bound = request_.norm == NormRule::free;
        const Norms size = read_norms<!Signed>();
        if (!size.finite) return not_finite();
        const double bound = result_.norm.fraction, first = one_bound ? form_.rho : form_.rho * bound;
        // Nothing else is within the bounds, and nothing moves.
        if (first == 0) return zero(one_bound ? Active::l1 : Active::both);
        const bool small = one_bound || size.l2() <= bound / size.unit;
        if (small && size.sum <= first / size.unit) return inside(size);
        if (!small && size.sum <= form_.rho * size.l2()) return direction(size);
        const ClosedForm both = form_;
        if (!find_l1(first)) return not_finite();
        if (one_bound || !(result_.l2 > bound)) return result_;
        known = nullptr;
        reads = 0;
        const double evaluations = result_.evaluations;
        start_again(both, bound, evaluations);
        find();
        set_norms();
        // Below 1, or tied, only by rounding.
        if (result_.unique == 0 || !(result_.scale >= 1)) {
            const double more = result_.evaluations;
            start_again(both, bound, more);
            find_l1(first);
        }
        result_.unique = 1;
        return result_;
    }
    // The vectors with this L1 norm, and any L2 norm; false if x is not finite.
    bool find_l1(double l1) {
        form_ = ClosedForm::of_l1(form_.n, l1);
        result_.norm = {};
        if (!find()) return false;
        set_norms();
        result_.unique = 1;
        return true;
    }
    void start_again(const ClosedForm& form, double l2, double evaluations) {
        form_ = form;
        result_ = {};
        result_.norm = {l2, 1};
        result_.evaluations = evaluations;
    }

    // The projection at unit norm; false if x is not finite.
    bool find() {
        result_.evaluations += reads;
        if (known && known->count > 0 && !revived(*known)) {
            interior(*known);
            return true;
        }
        if (automatic() && !form_.constant) {
            Sampled<Signed, T> sampled(x_, n_, form_, request_.sampling, masked);
            sampled.ahead = ahead;
            const auto outcome = sampled.run();
            result_.evaluations += sampled.reads;
            if (masked && masked->packed) pack();
            if (outcome == Sampled<Signed, T>::Outcome::not_finite) return false;
            if (outcome == Sampled<Signed, T>::Outcome::found && !revived(sampled.support)) {
                interior(sampled.support);
                result_.entries = sampled.entries;
                return true;
            }
        }
        pack();
        const Survey<T> seen = survey<Signed>(x_, n_);
        if (automatic()) result_.evaluations += 1;
        if (!seen.finite()) return false;
        const double excess = form_.excess_of_ties(seen.ties);
        if (form_.constant) {
            constant(seen);
        } else if (excess > 0) {
            tied(seen);
        } else if (excess == 0) {
            full_ties(seen);
        } else {
            search(seen);
        }
        return true;
    }

    const Solution<T>& not_finite() {
        result_ = {};
        result_.finite = false;
        return result_;
    }

    // Zero keeps its norm, and is the nearest to a vector that points away from all of D; or nothing else is within the
    // bounds.
    const Solution<T>& zero(Active active = Active::both) {
        const double evaluations = result_.evaluations;
        result_ = {};
        result_.shape = Shape::zero;
        result_.l1 = result_.l2 = 0;
        result_.active = static_cast<double>(active);
        result_.evaluations = evaluations;
        return result_;
    }

    template <bool Positive> Norms read_norms() {
        if (automatic()) result_.evaluations += 1;
        return masked ? norms<Positive>(masked->x, masked->places, masked->mask) : norms<Positive>(x_, n_);
    }

    // sigma(x) >= sigma*, that is l1^2/l2^2 <= K. Over the c nonzero entries, with mean m and sum of squares s about
    // it, this reads c (c - K) <= K s/m^2: no digits are lost where entries are nearly equal.
    bool sparse_enough(const Norms& size) {
        const Survey<T> seen = survey<Signed>(x_, n_);
        if (!seen.finite()) return false;
        Evaluator<Signed, T> evaluator(x_, n_, seen);
        const Support<T> nonzero = evaluator.settle(0, size.sum / size.count * size.unit);
        if (automatic()) result_.evaluations += 1 + static_cast<double>(evaluator.evaluations);
        const double mean = nonzero.mean - nonzero.frame.into(0);
        return nonzero.count * form_.excess(nonzero.count) <= form_.k * (nonzero.spread / mean / mean);
    }

    // Within all bounds: x as it is, or its positive part.
    const Solution<T>& inside(const Norms& size) {
        result_.shape = Shape::direction;
        result_.active = static_cast<double>(Active::none);
        result_.support_size = size.count;
        result_.shift = 0;
        result_.scale = 1;
        result_.l1 = size.sum * size.unit;
        result_.l2 = size.l2() * size.unit;
        return result_;
    }

    const Solution<T>& direction(const Norms& size) {
        const double l1 = size.sum, l2 = size.l2();
        result_.shape = Shape::direction;
        const bool nearest = request_.norm == NormRule::nearest, to_l1 = request_.l1_given && !nearest;
        result_.keep_direction(to_l1);
        result_.support_size = size.count;
        if (nearest) result_.norm = {l2, size.unit};
        if (to_l1) result_.norm.fraction *= form_.rho * l2 / l1;
        // Entries times frame.scale are of order one; `gain` brings them to unit norm.
        result_.frame.scale = 1 / size.unit;
        result_.gain = 1 / l2;
        result_.shift = 0;
        // 0 would say that there is no scale.
        result_.scale = std::max(l2 / result_.norm.fraction * size.unit / result_.norm.power,
                                 std::numeric_limits<double>::denorm_min());
        result_.l2 = result_.norm.value();
        result_.l1 = result_.norm.fraction * (l1 / l2) * result_.norm.power;
        return result_;
    }

    // Entries are negative or zero. Of all p >= 0 of this L2 norm that are sparse enough, nearest is the one with the
    // largest entry alone: <p, x> is at most that entry times the L1 norm of p, which is at least the L2 norm. (Where
    // the L1 norm is given it is the same vector, brought to that norm.)
    const Solution<T>& one_hot(const Survey<T>& seen) {
        if (request_.norm == NormRule::nearest) return zero();
        result_.keep_direction(request_.l1_given);
        if (request_.l1_given) result_.norm.fraction *= form_.rho;
        result_.shape = Shape::tied;
        result_.pivot = seen.max;
        result_.first = 1;
        result_.support_size = 1;
        result_.unique = seen.ties == 1;
        result_.l1 = result_.l2 = result_.norm.value();
        return result_;
    }

    void constant(const Survey<T>& seen) {
        result_.shape = Shape::constant;
        result_.rest = 1 / std::sqrt(static_cast<double>(n_));
        form_.rho = std::sqrt(static_cast<double>(n_));
        result_.support_size = static_cast<double>(n_);
        result_.unique = !(Signed && seen.min == 0);
        if (request_.norm == NormRule::nearest) {
            Evaluator<Signed, T> evaluator(x_, n_, seen);
            const Support<T> all =
                evaluator.settle(-std::numeric_limits<T>::infinity(), seen.min * 0.5 + seen.max * 0.5);
            if (automatic()) result_.evaluations += static_cast<double>(evaluator.evaluations);
            result_.norm = inner_product(form_.rho, all.frame, all.mean, 0);
        }
    }

    void nearest_to_ties(const Survey<T>& seen) {
        if (request_.norm == NormRule::nearest)
            result_.norm = inner_product(form_.rho, Frame{static_cast<double>(seen.max), 1, 1}, 0, 0);
    }

    // More largest entries than K: every point of D supported on them is nearest; the rule is that the first entry
    // gets more than the others, which get the same.
    void tied(const Survey<T>& seen) {
        const TiedValues values = form_.tied(seen.ties);
        result_.shape = Shape::tied;
        result_.pivot = seen.max;
        result_.first = values.first;
        result_.rest = values.rest;
        result_.support_size = form_.single() ? 1 : seen.ties;
        result_.unique = false;
        nearest_to_ties(seen);
    }

    // Exactly K largest entries: they share l1 evenly, and alpha is the next smaller entry.
    void full_ties(const Survey<T>& seen) {
        const double m = seen.ties;
        const Support<T> top = Evaluator<Signed, T>(x_, n_, seen).evaluate(next_below(seen.max), seen.max);
        if (automatic()) result_.evaluations += 1;
        result_.shape = Shape::tied;
        result_.pivot = seen.max;
        result_.first = result_.rest = form_.rho / m;
        result_.shift = top.below;
        // beta = (max - alpha) m / l1, the difference in a frame in which it cannot overflow.
        result_.frame = Frame::about<T>(0, top.below, seen.max);
        result_.gain = form_.rho / m / (result_.frame.into(seen.max) - result_.frame.into(top.below));
        result_.support_size = m;
        nearest_to_ties(seen);
    }

    void search(const Survey<T>& seen) {
        Search<Signed, T> search(x_, n_, form_, seen);
        const Support<T> s = search.run(request_.solver);
        interior(s);
        const bool revives = seen.min == 0 && s.count == static_cast<double>(n_);
        if (revived(s) || (revives && is_noise(s, seen.max))) {
            result_.pivot = 0;
            result_.shift = 0;
            result_.support_size = search.evaluate(0, s.data_mean()).count;
        } else {
            // The sign of a zero that becomes nonzero was a choice.
            result_.unique = !(Signed && revives);
            if (form_.l1_alone) leave_out_zeros(s);
        }
        // The survey, counted by both, is one read.
        result_.evaluations += static_cast<double>(search.evaluations) - automatic();
    }

    // Where the closed form, by rounding, gives nothing to entries of its support, they do not count.
    void leave_out_zeros(const Support<T>& s) {
        const auto value = [&](T w) { return result_.base + (s.frame.into(w) - s.mean) * result_.gain; };
        if (value(s.above) > 0) return;
        result_.support_size = 0;
        for (std::size_t i = 0; i < n_; ++i) {
            const T w = magnitude<Signed>(x_[i]);
            if (value(w) > 0)
                result_.support_size += w > s.pivot;
            else
                result_.pivot = std::max(result_.pivot, w);
        }
        result_.evaluations += 1;
    }

    // Bounds never revive zeros, though rounding may put the shift below them.
    bool revived(const Support<T>& s) const { return request_.at_most && s.above <= 0; }

    void interior(const Support<T>& s) {
        const Fit<double> fit = form_.fit(s.count, s.mean, s.spread, s.frame.unit());
        result_.shape = Shape::interior;
        result_.pivot = s.pivot;
        result_.frame = s.frame;
        result_.mean = s.mean;
        result_.gain = 1 / fit.scale;
        result_.base = fit.base;
        result_.shift = s.frame.back(fit.step);
        // Far below tiny entries the shift is no number of their frame.
        if (form_.l1_alone && std::isinf(fit.step)) result_.shift = s.data_mean() - fit.base;
        result_.support_size = s.count;
        second_norm_ = form_.second_norm(s.count, s.spread, fit);
        if (request_.norm == NormRule::nearest)
            result_.norm = inner_product(form_.rho, s.frame, s.mean, s.spread / fit.scale);
    }

    // A vector that is already in D up to rounding keeps its zeros. Its ratio of norms falls short of the
    // target by a share of (n - K)/rho times what a zero would receive; all other entries stay as they are.
    bool is_noise(const Support<T>& all, T max) const {
        const Norms size = norms<false>(x_, n_);
        // Not from the mean in the frame, whose reference may be far from zero.
        const double mean = size.sum / form_.n * (size.unit * all.frame.halving * all.frame.scale);
        const double received = result_.base - mean * result_.gain;
        const double largest = result_.base + (all.frame.into(max) - all.mean) * result_.gain;
        const double limit = request_.off_ratio * form_.rho / form_.excess(form_.n);
        return received <= std::min(limit, 4 * request_.eps * (result_.base + largest));
    }

    const T* x_;
    std::size_t n_;
    ClosedForm form_;
    const Request& request_;
    Solution<T> result_;
    double second_norm_ = 1;  // of the result, in units of its norm
};

}  // namespace hoyer::inline HOYER_ISA
