// Algorithm 1 on one vector: the support above a pivot, with mean and spread that have all their digits.
#pragma once

#include "search/moments.hpp"

namespace hoyer::inline HOYER_ISA {

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
    double blur() const { return blur_beside(spread); }
    // The same measured against other squares than those of the deviations.
    double blur_beside(double squares) const {
        if (coarse) return HUGE_VAL;
        return squares > 0 ? count * mean * mean / squares : (mean == 0 ? 0 : HUGE_VAL);
    }
    bool sharp() const { return blur() <= 1; }
    double data_mean() const { return frame.back(mean); }

    // sum(x - pivot) and sum (x - pivot)^2 over the support: l1(alpha) and l2(alpha)^2 of the paper.
    double first_norm() const { return count * (mean - frame.into(pivot)); }
    double second_norm_squared() const {
        const double distance = mean - frame.into(pivot);
        return spread + count * distance * distance;
    }

    void set(const EntrySums& sums, T next_below, T next_above) {
        count = sums.count;
        below = next_below;
        above = next_above;
        mean = count > 0 ? sums.sum / count : 0;
        spread = std::max(sums.squares - mean * sums.sum, 0.0);
    }
};

// Entries that were summed beforehand and take part in every evaluation; the vector searched holds none of them.
template <class T> struct Summed {
    Frame frame;
    EntrySums sums;
    T low{};    // every entry that is neither here nor in the vector is at most this
    T above{};  // every entry here is at least this
};

// One vector, and the evaluations spent on it.
template <bool Signed, class T> class Evaluator {
public:
    Evaluator(const T* x, std::size_t n, const Survey<T>& seen, const Summed<T>* summed = nullptr)
        : x_(x), n_(n), seen_(seen), summed_(summed) {}

    // The support above `pivot`, its sums about `reference`.
    Support<T> evaluate(T pivot, double reference) {
        ++evaluations;
        return look(pivot, reference, std::max(pivot, seen_.min));
    }

    // The same support with its sums about its mean, so that nothing is lost in the spread.
    Support<T> sharpened(Support<T> s) {
        // Two rounds are enough: the first gets the mean to within rounding of the reference.
        // Sums made beforehand cannot be moved.
        for (int round = 0; round < 2 && !s.sharp() && !summed_; ++round) {
            ++evaluations;
            s = look(s.pivot, std::clamp<double>(s.data_mean(), s.above, seen_.max), s.above);
        }
        return s;
    }

    // The support above `pivot`, sharp.
    Support<T> settle(T pivot, double reference) { return sharpened(evaluate(pivot, reference)); }

    long evaluations = 0;

protected:
    // `least` bounds the entries above the pivot from below: it sizes the frame.
    Support<T> look(T pivot, double reference, T least) const {
        Support<T> s;
        s.pivot = pivot;
        s.frame = summed_ ? summed_->frame : Frame::about<T>(reference, least, seen_.max);
        const Moments<T> m = moments<Signed>(x_, n_, pivot, s.frame);
        EntrySums sums = m.sums.value();
        if (summed_) {
            sums.add(summed_->sums);
            s.set(sums, std::max(m.below, summed_->low), std::min(m.above, summed_->above));
            return s;
        }
        if (m.above < seen_.max) s.coarse = s.frame.into(seen_.max) - s.frame.into(m.above) < 1e-120;
        s.set(sums, m.below, m.above);
        return s;
    }

    const T* x_;
    std::size_t n_;
    const Survey<T>& seen_;
    const Summed<T>* summed_;
};

// What one reading tells, or a second one where the first entry, about which sums are taken, is far from the mean.
template <bool Signed, class T> Summary summary(const T* x, std::size_t n) {
    constexpr double nan = std::numeric_limits<double>::quiet_NaN();
    constexpr T infinity = std::numeric_limits<T>::infinity();
    const Survey<T> seen = survey<Signed>(x, n);
    if (!seen.finite()) return {nan, nan, nan, nan};
    Support<T> s;
    s.frame = Frame::about<T>(static_cast<double>(seen.first), seen.min, seen.max);
    if (s.frame.plain()) s.set({static_cast<double>(n), seen.sum.value(), seen.squares.value()}, -infinity, seen.min);
    // Four bits may be lost here.
    if (!s.frame.plain() || s.blur() > 16) {
        const double reference = s.frame.plain() ? s.data_mean() : seen.min * 0.5 + seen.max * 0.5;
        s = Evaluator<Signed, T>(x, n, seen).settle(-infinity, std::clamp<double>(reference, seen.min, seen.max));
    }
    return {static_cast<double>(seen.min), static_cast<double>(seen.max), s.data_mean(),
            s.frame.length(std::sqrt(s.spread / s.count))};
}

// The sums above each of several pivots; NaN if x is not finite. `known` and `reference` spare readings; or null.
template <bool Signed, class T>
void sums(const T* x, std::size_t n, const double* pivots, std::size_t count, const Summary* known,
          const double* reference, Sums* out) {
    constexpr double nan = std::numeric_limits<double>::quiet_NaN();
    Survey<T> seen;
    if (known) {
        seen.min = static_cast<T>(known->low);
        seen.max = static_cast<T>(known->high);
    } else {
        seen = survey<Signed>(x, n);
    }
    const bool finite = known ? !std::isnan(known->low) : seen.finite();
    Evaluator<Signed, T> evaluator(x, n, seen);
    for (std::size_t i = 0; i < count; ++i) {
        out[i] = {nan, nan, nan, nan, nan};
        if (!finite || std::isnan(pivots[i])) continue;
        const double middle = seen.min * 0.5 + seen.max * 0.5;
        // The entries above a double are those above the next smaller number of their type.
        const Support<T> s = evaluator.settle(floor_to<T>(pivots[i]), reference ? *reference : middle);
        out[i] = {s.count, nan, nan, s.below, s.above};
        if (s.count == 0) continue;
        out[i].mean = s.data_mean();
        out[i].deviation = s.frame.length(std::sqrt(s.spread / s.count));
    }
}

// The sums above the higher end of a bracket, and the entries inside of it, in one reading.
template <bool Signed, class T>
Sums between(const T* x, std::size_t n, const Bracket<T>& bracket, const Summary& known, std::vector<double>& inside) {
    constexpr double nan = std::numeric_limits<double>::quiet_NaN();
    const Frame frame = Frame::about<T>(bracket.centre, static_cast<T>(known.low), static_cast<T>(known.high));
    if (!frame.plain()) return {nan, nan, nan, nan, nan};
    constexpr std::size_t step = sum_block<T>;
    std::vector<T> buffer(step + append_margin);
    Taken<T> taken{};
    taken.entries = buffer.data();
    for (std::size_t begin = 0; begin < n; begin += step) {
        const std::size_t count =
            take_block<Signed, Reading::two_sided>(x + begin, std::min(n - begin, step), bracket, 0, taken);
        inside.insert(inside.end(), buffer.begin(), buffer.begin() + static_cast<std::ptrdiff_t>(count));
    }
    Support<T> s;
    s.frame = frame;
    s.set(taken.above(), bracket.low, next_above(bracket.high));
    const bool some = s.count > 0;
    return {s.count, some ? s.data_mean() : nan, some ? std::sqrt(s.spread / s.count) : nan, s.below, s.above};
}

}  // namespace hoyer::inline HOYER_ISA
