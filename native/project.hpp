// One vector: from target to solution (Algorithm 2 with every special case), and the pass that writes the result.
#pragma once

#include <cmath>
#include <cstddef>
#include <limits>

#include "jobs.hpp"
#include "search/full.hpp"
#include "search/moments.hpp"
#include "search/sampled.hpp"
#include "simd/stream.hpp"
#include "target.hpp"

namespace hoyer::inline HOYER_ISA {

// How the result is formed from the entries.
enum class Shape {
    interior,   // max((x - alpha)/beta, 0)
    tied,       // the first of the largest entries gets `first`, the others of them `rest`
    constant,   // every entry gets `rest`
    direction,  // x itself (or its positive part), brought to norm
    zero,       // every entry 0: norm 0 was kept or is nearest
    invalid     // NaN or infinity in x, or an impossible target
};

// Everything about the projection of one vector but the values.
template <class T> struct Solution {
    Shape shape = Shape::invalid;
    T pivot{};  // entries above it are in the support
    Frame frame;
    double mean = 0, gain = 0, base = 0;  // interior: base + (t - mean) * gain, at unit norm
    double first = 0, rest = 0;           // tied, constant: values at unit norm
    Norm norm;                            // l2

    double shift = std::numeric_limits<double>::quiet_NaN();
    double scale = 0;
    double support_size = 0;
    double evaluations = 0;
    bool unique = true;
    bool finite = true;
    double l1 = std::numeric_limits<double>::quiet_NaN();
    double l2 = std::numeric_limits<double>::quiet_NaN();
    Kept kept = Kept::no;
    Entries<T> entries;  // where the support is, if known
};

// <p, x> = rho * mean(x) + deviation over the support, p of unit norm: no terms of opposite sign for x >= 0, and no
// overflow. Negative ones count as 0 (fact 8).
inline Norm inner_product(double rho, const Frame& frame, double mean, double deviation) {
    const double base = frame.reference * frame.halving;
    const double size = std::max({std::fabs(base), std::fabs(mean / frame.scale), deviation / frame.scale});
    double power = 1;
    if (!(size > 1e-150 && size < 1e150) && size > 0)
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
    Projector(const T* x, std::size_t n, const Target& target, double l2, const Request& request)
        : x_(x), n_(n), target_(target), request_(request) {
        result_.norm = {l2, 1};
    }

    Address next = 0, room = 0;  // what is wanted in the caches after this, or 0

    // If set: the support, found by whoever looked at several vectors at once, and the reads that took.
    const Support<T>* known = nullptr;
    double reads = 0;

    // Solves with unit norm first and scales afterwards (DESIGN 4.1).
    const Solution<T>& solve() {
        // An impossible target gives NaN.
        if (std::isnan(target_.rho) || std::isnan(result_.norm.fraction)) return result_;
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
                if (!seen.finite) return not_finite();
                if (seen.min < 0) return one_hot(seen);
            }
        }
        if (!find()) return not_finite();
        if (result_.norm.fraction == 0) return zero();
        result_.l2 = result_.norm.value();
        result_.l1 = target_.rho * result_.norm.fraction * result_.norm.power;
        if (result_.gain > 0) result_.scale = scale_in_data_units(1 / result_.gain, result_.frame, result_.norm);
        return result_;
    }

private:
    bool automatic() const { return request_.solver == Solver::automatic; }

    // The projection at unit norm; false if x is not finite.
    bool find() {
        result_.evaluations += reads;
        if (known && known->count > 0) {
            interior(*known);
            return true;
        }
        if (automatic() && !target_.constant) {
            Sampled<Signed, T> sampled(x_, n_, target_, request_.sampling);
            sampled.next = next;
            sampled.room = room;
            const auto outcome = sampled.run();
            result_.evaluations += sampled.reads;
            if (outcome == Sampled<Signed, T>::Outcome::not_finite) return false;
            if (outcome == Sampled<Signed, T>::Outcome::found) {
                interior(sampled.support);
                result_.entries = sampled.entries;
                return true;
            }
        }
        const Survey<T> seen = survey<Signed>(x_, n_);
        if (automatic()) result_.evaluations += 1;
        if (!seen.finite) return false;
        const double excess = target_.excess(seen.ties);
        if (target_.constant) {
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

    // Zero keeps its norm, and is the nearest to a vector that points away from all of D.
    const Solution<T>& zero() {
        const double evaluations = result_.evaluations;
        result_ = {};
        result_.shape = Shape::zero;
        result_.l1 = result_.l2 = 0;
        result_.evaluations = evaluations;
        return result_;
    }

    template <bool Positive> Norms read_norms() {
        if (automatic()) result_.evaluations += 1;
        return norms<Positive>(x_, n_);
    }

    // sigma(x) >= sigma*, that is l1^2/l2^2 <= K. Over the c nonzero entries, with mean m and sum of squares s about
    // it, this reads c (c - K) <= K s/m^2: no digits are lost where entries are nearly equal.
    bool sparse_enough(const Norms& size) {
        const Survey<T> seen = survey<Signed>(x_, n_);
        if (!seen.finite) return false;
        Search<Signed, T> search(x_, n_, target_, seen);
        const Support<T> nonzero = search.settle(0, size.sum / size.count * size.unit);
        if (automatic()) result_.evaluations += 1 + static_cast<double>(search.evaluations);
        const double mean = nonzero.mean - nonzero.frame.into(0);
        return nonzero.count * target_.excess(nonzero.count) <= target_.k * (nonzero.spread / mean / mean);
    }

    const Solution<T>& direction(const Norms& size) {
        const double l1 = size.sum, l2 = size.l2();
        result_.shape = Shape::direction;
        result_.kept = Kept::to_l2;
        result_.support_size = size.count;
        if (request_.norm == NormRule::nearest) {
            result_.norm = {l2, size.unit};
        } else if (request_.l1_given) {
            result_.kept = Kept::to_l1;
            result_.norm.fraction *= target_.rho * l2 / l1;
        }
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
        result_.kept = request_.l1_given ? Kept::to_l1 : Kept::to_l2;
        if (request_.l1_given) result_.norm.fraction *= target_.rho;
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
        target_.rho = std::sqrt(static_cast<double>(n_));
        result_.support_size = static_cast<double>(n_);
        result_.unique = !(Signed && seen.min == 0);
        if (request_.norm == NormRule::nearest) {
            Search<Signed, T> search(x_, n_, target_, seen);
            const Support<T> all = search.settle(-std::numeric_limits<T>::infinity(), seen.min * 0.5 + seen.max * 0.5);
            if (automatic()) result_.evaluations += static_cast<double>(search.evaluations);
            result_.norm = inner_product(target_.rho, all.frame, all.mean, 0);
        }
    }

    void nearest_to_ties(const Survey<T>& seen) {
        if (request_.norm == NormRule::nearest)
            result_.norm = inner_product(target_.rho, Frame{static_cast<double>(seen.max), 1, 1}, 0, 0);
    }

    // More largest entries than K: every point of D supported on them is nearest; fact 5 says which one is taken.
    void tied(const Survey<T>& seen) {
        const double m = seen.ties, rest = target_.excess(m) / m;
        result_.shape = Shape::tied;
        result_.pivot = seen.max;
        result_.first = target_.rho / m + std::sqrt((m - 1) * rest / m);
        result_.rest = target_.single() ? 0 : std::max(target_.rho / m - std::sqrt(rest / (m * (m - 1))), 0.0);
        result_.support_size = target_.single() ? 1 : m;
        result_.unique = false;
        nearest_to_ties(seen);
    }

    // Exactly K largest entries: they share l1 evenly, and alpha is the next smaller entry.
    void full_ties(const Survey<T>& seen) {
        const double m = seen.ties;
        Search<Signed, T> search(x_, n_, target_, seen);
        const T below = next_below(seen.max);
        const Support<T> top = search.evaluate(below, seen.max);
        if (automatic()) result_.evaluations += 1;
        result_.shape = Shape::tied;
        result_.pivot = seen.max;
        result_.first = result_.rest = target_.rho / m;
        result_.shift = top.below;
        // beta = (max - alpha) m / l1, the difference in a frame in which it cannot overflow.
        result_.frame = Frame::about<T>(0, top.below, seen.max);
        result_.gain = target_.rho / m / (result_.frame.into(seen.max) - result_.frame.into(top.below));
        result_.support_size = m;
        nearest_to_ties(seen);
    }

    void search(const Survey<T>& seen) {
        Search<Signed, T> search(x_, n_, target_, seen);
        const Support<T> s = search.run(request_.solver);
        interior(s);
        const bool revives = seen.min == 0 && s.count == static_cast<double>(n_);
        if (revives && is_noise(s, seen.max)) {
            result_.pivot = 0;
            result_.shift = 0;
            result_.support_size = search.evaluate(0, s.frame.back(s.mean)).count;
        } else {
            // The sign of a zero that becomes nonzero was a choice.
            result_.unique = !(Signed && revives);
        }
        // The survey, counted by both, is one read.
        result_.evaluations += static_cast<double>(search.evaluations) - automatic();
    }

    void interior(const Support<T>& s) {
        const double scale = s.scale(target_);
        result_.shape = Shape::interior;
        result_.pivot = s.pivot;
        result_.frame = s.frame;
        result_.mean = s.mean;
        result_.gain = 1 / scale;
        result_.base = target_.rho / s.count;
        result_.shift = s.frame.back(s.exact_step(target_));
        result_.support_size = s.count;
        if (request_.norm == NormRule::nearest)
            result_.norm = inner_product(target_.rho, s.frame, s.mean, s.spread / scale);
    }

    // A vector that is already in D up to rounding keeps its zeros (DESIGN 4.9). Its ratio of norms falls short of the
    // target by a share of (n - K)/rho times what a zero would receive; all other entries stay as they are.
    bool is_noise(const Support<T>& all, T max) const {
        const Norms size = norms<false>(x_, n_);
        // Not from the mean in the frame, whose reference may be far from zero.
        const double mean = size.sum / target_.n * (size.unit * all.frame.halving * all.frame.scale);
        const double received = result_.base - mean * result_.gain;
        const double largest = result_.base + (all.frame.into(max) - all.mean) * result_.gain;
        const double limit = request_.off_ratio * target_.rho / target_.excess(target_.n);
        return received <= std::min(limit, 4 * request_.eps * (result_.base + largest));
    }

    const T* x_;
    std::size_t n_;
    Target target_;
    const Request& request_;
    Solution<T> result_;
};

// out = x's sign on a value of the non-negative projection; zeros come out as +0.0.
template <bool Signed, class T, class Out> HOYER_INLINE Out with_sign(double value, T x) {
    // Narrowed first: what vanishes in the narrower type has no sign.
    const Out narrow = static_cast<Out>(value);
    return Signed && x < 0 && narrow > Out(0) ? -narrow : narrow;
}

// Whether the arithmetic of the data does for the result.
inline bool ordinary_write(double l2, double scale, double shift) {
    return l2 > 1e-30 && l2 < 1e30 && scale > 1e-30 && scale < 1e30 && std::fabs(shift) < 1e30;
}

// p = (x - origin) * gain + rest with `origin` alpha as a number of type T: the difference is exact near alpha and good
// to half a unit in the last place elsewhere, so the arithmetic can be that of the data.
template <class T> struct Line {
    T pivot, origin, gain, rest;
};

template <class T> Line<T> line_of(const Solution<T>& s) {
    const double l2 = s.norm.fraction;
    const T origin = static_cast<T>(s.shift);
    const double rest = (s.base + (s.frame.into(static_cast<double>(origin)) - s.mean) * s.gain) * l2;
    return {s.pivot, origin, static_cast<T>(s.gain * l2), static_cast<T>(rest)};
}

template <bool Signed, class T> HOYER_INLINE void write_line(const T* x, T* out, std::size_t n, const Line<T>& line) {
    const Vec<T> none{}, pivot = splat(line.pivot);
    const auto value_of = [&](Vec<T> v) __attribute__((always_inline)) {
        const Vec<T> w = magnitudes<Signed, T>(v), p = (w - line.origin) * line.gain + line.rest;
        const Vec<T> value = (w > pivot) & (p > none) ? p : none;
        // 0 - 0 is +0, unlike -0.
        if constexpr (Signed)
            return v < none ? none - value : value;
        else
            return value;
    };
    std::size_t i = 0;
#pragma GCC unroll 4
    for (; i + width<T> <= n; i += width<T>) store(out + i, value_of(load(x + i)));
    if (i == n) return;
    T last[width<T>]{};
    std::copy_n(x + i, n - i, last);
    store(last, value_of(load(last)));
    std::copy_n(last, n - i, out + i);
}

template <bool Signed, class T, class Out>
void write_interior(const T* x, Out* out, std::size_t n, const Solution<T>& s) {
    const double reference = s.frame.reference * s.frame.halving;
    const double halving = s.frame.halving, scale = s.frame.scale, mean = s.mean;
    const double fraction = s.norm.fraction, power = s.norm.power, gain = s.gain, base = s.base;
    const T pivot = s.pivot;
    for (std::size_t i = 0; i < n; ++i) {
        const T v = x[i], w = magnitude<Signed>(v);
        const double t = (static_cast<double>(w) * halving - reference) * scale;
        const double p = (base + (t - mean) * gain) * fraction * power;
        out[i] = with_sign<Signed, T, Out>((w > pivot) & (p > 0) ? p : 0.0, v);
    }
}

template <bool Signed, class T, class Out> void write_tied(const T* x, Out* out, std::size_t n, const Solution<T>& s) {
    const double first = s.first * s.norm.fraction * s.norm.power, rest = s.rest * s.norm.fraction * s.norm.power;
    bool seen = false;
    for (std::size_t i = 0; i < n; ++i) {
        const T v = x[i];
        const bool top = magnitude<Signed>(v) == s.pivot;
        out[i] = with_sign<Signed, T, Out>(top ? (seen ? rest : first) : 0.0, v);
        seen |= top;
    }
}

template <bool Signed, class T, class Out>
void write_direction(const T* x, Out* out, std::size_t n, const Solution<T>& s) {
    const double scale = s.frame.scale, gain = s.gain, fraction = s.norm.fraction, power = s.norm.power;
    // A vector whose norm does not change comes back as it is.
    const bool same = s.scale == 1;
    for (std::size_t i = 0; i < n; ++i) {
        const T v = x[i], w = magnitude<Signed>(v);
        const double p = same ? static_cast<double>(w) : static_cast<double>(w) * scale * gain * fraction * power;
        out[i] = with_sign<Signed, T, Out>(w > 0 ? p : 0.0, v);
    }
}

// Writes the projection; `out` may be `x`.
template <bool Signed, class T, class Out> void write_part(const T* x, Out* out, std::size_t n, const Solution<T>& s) {
    switch (s.shape) {
        case Shape::interior: {
            if constexpr (std::is_same_v<T, Out>)
                if (s.frame.plain() && s.norm.power == 1 && ordinary_write(s.norm.fraction, s.scale, s.shift))
                    return write_line<Signed>(x, out, n, line_of(s));
            return write_interior<Signed>(x, out, n, s);
        }
        case Shape::tied:
            return write_tied<Signed>(x, out, n, s);
        case Shape::direction:
            return write_direction<Signed>(x, out, n, s);
        case Shape::constant: {
            const double value = s.rest * s.norm.fraction * s.norm.power;
            for (std::size_t i = 0; i < n; ++i) out[i] = with_sign<Signed, T, Out>(value, x[i]);
            return;
        }
        case Shape::zero:
            for (std::size_t i = 0; i < n; ++i) out[i] = Out(0);
            return;
        case Shape::invalid:
            for (std::size_t i = 0; i < n; ++i) out[i] = static_cast<Out>(std::numeric_limits<float>::quiet_NaN());
            return;
    }
}

// The nonzero entries of an interior result whose places are known: sink(position, value), ascending.
template <bool Signed, class Out, class T, class Sink>
void for_each_entry(const Entries<T>& entries, const Solution<T>& s, Sink sink) {
    Out values[block_size];
    for (std::size_t begin = 0; begin < entries.count; begin += block_size) {
        const std::size_t size = std::min(block_size, entries.count - begin);
        write_part<Signed>(entries.room + begin, values, size, s);
        for (std::size_t i = 0; i < size; ++i)
            if (values[i] != Out(0)) sink(entries.positions[begin + i], values[i]);
    }
}

// Reads the entries anew, with their signs, before `x` may be overwritten.
template <class T> void fetch(const T* x, const Entries<T>& entries) {
    for (std::size_t i = 0; i < entries.count; ++i) entries.room[i] = x[entries.positions[i]];
}

// Writes the projection of a vector of any length, by several threads where that pays; `out` may be `x`.
template <bool Signed, class T, class Out>
void write(const T* x, Out* out, std::size_t n, const Solution<T>& s, std::size_t cache_bytes = 0) {
    const bool in_place = static_cast<const void*>(x) == static_cast<const void*>(out);
    if (s.entries.positions) {
        // Zeros but for a few entries.
        fetch(x, s.entries);
        const auto zeros = [](std::size_t, std::size_t size, Out* to) { std::fill_n(to, size, Out(0)); };
        write_long(out, n, in_place, zeros, cache_bytes);
        for_each_entry<Signed, Out>(s.entries, s, [&](std::int64_t position, Out value) { out[position] = value; });
    } else if (s.shape == Shape::tied) {
        // The first of tied entries is the first in the vector.
        write_part<Signed>(x, out, n, s);
    } else {
        const auto part = [&](std::size_t begin, std::size_t size, Out* to) {
            write_part<Signed>(x + begin, to, size, s);
        };
        write_long(out, n, in_place, part, cache_bytes);
    }
}

}  // namespace hoyer::inline HOYER_ISA
