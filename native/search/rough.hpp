// The search in the arithmetic of the data itself: fast, and good for a pivot only. Nothing here is believed before
// sums in double have confirmed it (Search::attempt).
#pragma once

#include "search/full.hpp"

namespace hoyer::inline HOYER_ISA {

// What both rough searches, of one vector here and of many in lanes.hpp, go by.
struct RoughRules {
    // Variances beyond these bounds, or lost in the rounding of the squares, tell nothing.
    static constexpr double least_variance = 1e-12, largest_variance = 1e12, digits = 1e-4;
    // Of a standard deviation: nearer to the smallest entry alpha may lie below all of them.
    static constexpr double whole_margin = 1e-4;
    // Of the mean distance of the support from a pivot: steps are not known better.
    static constexpr double resolution = 2e-6;
    // From below, how far to go from the exact step to Newton's, which tends to overshoot.
    static constexpr double newton_weight = 0.7;
};

// The sums of a survey for each entry of a register by itself, about a first entry.
template <class T> struct SurveyRegisters {
    Vec<T> first, sum{}, squares{}, low = first, high = first;

    HOYER_INLINE void see(Vec<T> v) {
        const Vec<T> t = v - first;
        sum += t;
        squares = fused(t, t, squares);
        high = larger(v, high);
        low = smaller(v, low);
    }
    HOYER_INLINE void join(const SurveyRegisters& other) {
        sum += other.sum;
        squares += other.squares;
        high = larger(high, other.high);
        low = smaller(low, other.low);
    }
};

// Where memory lies that is wanted in the caches next, since it is read or written next; or 0.
struct Ahead {
    Address read = 0, written = 0;
};

// Mean, variance and ends of a vector.
template <class T> struct RoughSurvey {
    double mean, variance;
    T min, max;
    bool ordinary;  // squares neither overflow nor vanish, and the variance has digits; false for NaN and infinity, too
};

// With Fetch, as much as the vector has comes to the caches from both places meanwhile.
template <bool Signed, bool Fetch = false, class T>
RoughSurvey<T> rough_survey(const T* x, std::size_t n, [[maybe_unused]] const Ahead& ahead = {}) {
    // About the first entry, which also fills up the last register.
    const T reference = magnitude<Signed>(x[0]);
    SurveyRegisters<T> seen[2] = {{splat(reference)}, {splat(reference)}};
    for_each_register<Signed, 2>(x, n, reference,
                                 [&]<bool S>(const T* at, std::size_t c) __attribute__((always_inline)) {
                                     if constexpr (Fetch) {
                                         const Address offset = address_of(at) - address_of(x);
                                         fetch(ahead.read + offset);
                                         fetch(ahead.written + offset);
                                     }
                                     seen[c].see(load_magnitudes<S>(at));
                                 });
    seen[0].join(seen[1]);
    const double size = static_cast<double>(n), mean = sum_across<T>(seen[0].sum) / size;
    const double square = sum_across<T>(seen[0].squares) / size, variance = square - mean * mean;
    return {reference + mean, variance, smallest_across<T>(seen[0].low), largest_across<T>(seen[0].high),
            variance > RoughRules::digits * square && variance < RoughRules::largest_variance &&
                variance > RoughRules::least_variance};
}

// Whether all entries may be the support: the exact step over them ends below the smallest, or near it.
template <class T> bool maybe_whole(const RoughSurvey<T>& seen, const ClosedForm& form) {
    const double deviation = std::sqrt(seen.variance);
    const double margin = RoughRules::whole_margin * deviation;
    return !(form.whole_step(seen.mean, deviation) > static_cast<double>(seen.min) + margin);
}

// Where alpha is: a pivot with no entry between itself and alpha, and the mean of the entries above.
template <class T> struct Place {
    bool found = false;
    T pivot{};
    double alpha = 0, centre = 0, count = 0, scale = 0;
    double reads = 0;
};

// The support above a pivot, distances measured from the pivot.
template <class T> using RoughSupport = Moments<T, EntrySums>;

template <bool Signed, class T> HOYER_INLINE RoughSupport<T> rough_part(const T* x, std::size_t n, T pivot) {
    const Vec<T> p = splat(pivot);
    RoughSums<T> sums[2];
    for_each_register<Signed, 2>(x, n, -std::numeric_limits<T>::infinity(),
                                 [&]<bool S>(const T* at, std::size_t c)
                                     __attribute__((always_inline)) { sums[c].see(load_magnitudes<S>(at), p); });
    sums[0].join(sums[1]);
    const double count = static_cast<double>(sum_across<CountOf<T>>(sums[0].inside));
    return {{count, sum_across<T>(sums[0].sum), sum_across<T>(sums[0].squares)},
            largest_across<T>(sums[0].below),
            smallest_across<T>(sums[0].above)};
}

// Sums of this many entries are added up in double: of more of them too many digits would be lost for any pivot to be
// found.
constexpr std::size_t rough_block = 8 * block_size;

template <bool Signed, class T> RoughSupport<T> rough_support(const T* x, std::size_t n, T pivot) {
    return sum_over_parts<RoughSupport<T>>(n, [&](std::size_t first, std::size_t length) {
        RoughSupport<T> part;
        for (std::size_t begin = 0; begin < length; begin += rough_block)
            part.add(rough_part<Signed>(x + first + begin, std::min(length - begin, rough_block), pivot));
        return part;
    });
}

// The start from mean and standard deviation, as if the entries were normal, or their tail uniform.
template <class T> Start rough_start(const RoughSurvey<T>& seen, const ClosedForm& form) {
    const double deviation = std::sqrt(seen.variance), top = seen.max;
    const Start start = form.start(deviation);
    const Overview<double> view{seen.mean, deviation, static_cast<double>(seen.min), top};
    return {form.first_pivot(form.n, view, start.pivot), std::min(seen.mean + start.centre * deviation, top)};
}

// The same, with the entries that were summed beforehand.
template <class T> void add_summed(RoughSupport<T>& s, T pivot, const Summed<T>& summed) {
    const EntrySums& sums = summed.sums;
    const double distance = summed.frame.reference - static_cast<double>(pivot);
    s.add({{sums.count, sums.sum + sums.count * distance,
            sums.squares + distance * (2 * sums.sum + sums.count * distance)},
           summed.low,
           summed.above});
}

// Looks for alpha in [low, high), from `pivot` on. `summed` has the entries that were summed beforehand, or is null.
// `near`: a pivot so near to alpha will do. `patient`: readings cost little, and the tail may be of any kind.
template <bool Signed, class T>
Place<T> rough_search(const T* x, std::size_t n, const ClosedForm& form, T pivot, T low, T high,
                      const Summed<std::type_identity_t<T>>* summed = nullptr, double near = 0, bool patient = false) {
    Place<T> place;
    const T end = low;
    // A search that is not over by then has to be more careful.
    // (Pivots come nearer by a third each time; in a large sample that takes longer, and costs little.)
    const int rounds = patient ? 30 : near > 0 ? 16 : 8;
    for (int round = 0; round < rounds; ++round) {
        RoughSupport<T> s = rough_support<Signed>(x, n, pivot);
        place.reads += 1;
        if (summed) add_summed(s, pivot, *summed);
        const auto [count, sum, squares] = s.sums;
        const double at = pivot, mean = sum / count;
        const Fit<double> fit = form.fit(count, at + mean, squares - mean * sum);
        const double newton = at + form.newton(count, sum, squares);
        double next = newton;
        if (fit.excess > 0) {
            const double alpha = fit.step;
            place.alpha = alpha;
            const bool consistent = static_cast<double>(s.below) <= alpha && alpha < static_cast<double>(s.above);
            // Beyond the end where it is looked for nothing is known about entries.
            if (consistent && alpha < static_cast<double>(end)) return place;
            if (consistent || std::fabs(alpha - at) < near) {
                return {true, pivot, alpha, at + mean, count, fit.scale, place.reads};
            }
            // This arithmetic cannot tell more.
            if (std::fabs(alpha - at) < RoughRules::resolution * mean) return place;
            // The exact step is a lower bound; from above alpha lies below the next entry, too.
            low = std::max(low, static_cast<T>(alpha));
            if (alpha > at) {
                const bool inside = newton > alpha && newton < static_cast<double>(high);
                next = inside ? alpha + RoughRules::newton_weight * (newton - alpha) : alpha;
            } else {
                high = std::min(high, s.below);
                if (!(newton < static_cast<double>(high))) next = next_below(high);
            }
        } else {
            high = std::min(high, s.below);
        }
        // Alpha lies beyond the end where it was looked for, or the next step tells that.
        if (pivot == end && !(next > at)) return place;
        if (low == end && next < static_cast<double>(low) && !patient)
            next = low;
        else if (!(next >= static_cast<double>(low) && next < static_cast<double>(high)))
            next = 0.5 * (static_cast<double>(low) + static_cast<double>(high));
        // Among the heaviest tails steps are small.
        if (patient && round >= 4 && round % 2 == 0) next = static_cast<double>(halfway(low, high));
        const T rounded = static_cast<T>(next);
        // NaN ends here as well.
        if (!(rounded >= low && rounded < high) || rounded == pivot) return place;
        pivot = rounded;
    }
    return place;
}

}  // namespace hoyer::inline HOYER_ISA
