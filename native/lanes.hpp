// Short vectors: the supports of many at once, one vector per lane.
//
// All vectors of a group take the same steps side by side: survey, start, evaluations. What is ordinary is decided here;
// ends of the range, ties, whole supports, NaN, doubt and slow searches are left to the full search, one vector at a time.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

#include "search.hpp"
#include "start.hpp"
#include "target.hpp"

namespace hoyer::inline HOYER_ISA {

template <bool Signed, class T> class LaneGroup {
public:
    static constexpr std::size_t width = 16;
    // Sums run through the vector one entry after the other: harmless for float in double, and for a few doubles.
    static constexpr std::size_t longest = sizeof(T) == 4 ? 256 : 48;

    explicit LaneGroup(std::size_t n) : n_(n), entries_(n * width) {}

    // The vector of lane `lane`.
    void put(std::size_t lane, const T* x) {
        for (std::size_t i = 0; i < n_; ++i) entries_[i * width + lane] = magnitude<Signed>(x[i]);
    }

    // Where the support was found: count > 0 and `reads`; elsewhere count is 0.
    Support<T> support[width];
    double reads[width];

    void solve(const Target (&targets)[width]) {
        survey();
        start(targets);
        for (int round = 0; round < 8 && active_ > 0; ++round) {
            evaluate();
            for (std::size_t l = 0; l < width; ++l)
                if (searching_[l]) step(l, targets[l]);
        }
        for (std::size_t l = 0; l < width; ++l)
            if (searching_[l]) support[l] = {};
    }

private:
    static constexpr T infinity = std::numeric_limits<T>::infinity();

    // Local arrays in the loops: the compiler keeps them in registers, members it must write back.
    template <class N> static HOYER_INLINE void copy(const N (&from)[width], N (&to)[width]) {
        std::copy_n(from, width, to);
    }

    void survey() {
        double reference[width], sum[width]{}, squares[width]{};
        T ties[width]{}, low[width], high[width];
        for (std::size_t l = 0; l < width; ++l) {
            low[l] = high[l] = entries_[l];
            reference[l] = entries_[l];
        }
        const T* row = entries_.data();
        for (std::size_t i = 0; i < n_; ++i, row += width) {
            for (std::size_t l = 0; l < width; ++l) {
                const T v = row[l];
                const double t = static_cast<double>(v) - reference[l];
                sum[l] += t;
                squares[l] += t * t;
                ties[l] = v > high[l] ? T(1) : (v == high[l] ? ties[l] + T(1) : ties[l]);
                high[l] = v > high[l] ? v : high[l];
                low[l] = v < low[l] ? v : low[l];
            }
        }
        copy(reference, reference_);
        copy(sum, sum_);
        copy(squares, squares_);
        copy(ties, ties_);
        copy(low, low_);
        copy(high, high_);
    }

    void start(const Target (&targets)[width]) {
        const double n = static_cast<double>(n_);
        active_ = 0;
        for (std::size_t l = 0; l < width; ++l) {
            const Target& target = targets[l];
            const double mean = sum_[l] / n, spread = squares_[l] - mean * sum_[l];
            const double range = static_cast<double>(high_[l]) - static_cast<double>(low_[l]);
            // False for NaN and infinity, too.
            const bool ordinary = range > 1e-30 && range < 1e30 && squares_[l] < 1e60 && spread > 1e-6 * squares_[l] &&
                                  !target.constant && target.excess(ties_[l]) < 0;
            support[l] = {};
            reads[l] = 1;
            searching_[l] = ordinary;
            pivot_[l] = high_[l];
            if (!ordinary) continue;
            // The exact step over all entries: below the minimum all of them are the support.
            const double all = mean - std::sqrt(spread * n / target.excess(n)) * target.rho / n;
            if (all <= static_cast<double>(low_[l]) - reference_[l] + 1e-6 * range) {
                searching_[l] = false;
                continue;
            }
            const Start guess = normal_start(target.k / n);
            const double deviation = std::sqrt(spread / n), centre = reference_[l] + mean;
            const double tail = std::min(1.0, 4 * target.k / (3 * n));
            const double pivot = std::min(centre + guess.pivot * deviation, high_[l] - tail * range);
            pivot_[l] = static_cast<T>(pivot);
            if (!(pivot_[l] >= low_[l] && pivot_[l] < high_[l])) pivot_[l] = low_[l];
            reference_[l] = std::min(centre + guess.centre * deviation, static_cast<double>(high_[l]));
            ++active_;
        }
    }

    void evaluate() {
        double reference[width], sum[width]{}, squares[width]{};
        T pivot[width], inside[width]{}, below[width], above[width];
        copy(reference_, reference);
        copy(pivot_, pivot);
        std::fill_n(below, width, -infinity);
        std::fill_n(above, width, infinity);
        const T* row = entries_.data();
        for (std::size_t i = 0; i < n_; ++i, row += width) {
            for (std::size_t l = 0; l < width; ++l) {
                const T v = row[l];
                const bool in = v > pivot[l];
                const double t = in ? static_cast<double>(v) - reference[l] : 0.0;
                sum[l] += t;
                squares[l] += t * t;
                inside[l] += in ? T(1) : T(0);
                const T up = in ? v : infinity, down = in ? -infinity : v;
                above[l] = up < above[l] ? up : above[l];
                below[l] = down > below[l] ? down : below[l];
            }
        }
        copy(sum, sum_);
        copy(squares, squares_);
        copy(inside, ties_);
        copy(below, below_);
        copy(above, above_);
    }

    // One step of Search::climb without its safeguards: whoever needs those is left to it.
    void step(std::size_t l, const Target& target) {
        Support<T> s;
        s.pivot = pivot_[l];
        s.frame = Frame{reference_[l], 1, 1};
        s.count = ties_[l];
        s.below = below_[l];
        s.above = above_[l];
        s.mean = s.count > 0 ? sum_[l] / s.count : 0;
        s.spread = std::max(squares_[l] - s.mean * sum_[l], 0.0);
        reads[l] += 1;
        if (!(target.excess(s.count) > 0)) {
            high_[l] = s.below;
            // Halfway between the known bounds; entries decide, so that is soon enough.
            pivot_[l] = static_cast<T>(0.5 * (static_cast<double>(low_[l]) + static_cast<double>(high_[l])));
            if (!(pivot_[l] < high_[l])) leave(l);
            return;
        }
        const T alpha = floor_back<T>(s.frame, s.exact_step(target));
        reference_[l] = s.frame.back(s.mean);
        if (s.below <= alpha && alpha < s.above) {
            if (!s.sharp()) return;   // once more at the same pivot, about the mean
            leave(l);
            if (!doubtful(s, target)) support[l] = s;
            return;
        }
        T next = alpha;
        if (alpha > pivot_[l]) {
            low_[l] = std::max(low_[l], pivot_[l]);
            const T newton = static_cast<T>(pivot_[l] + newton_sqr_step(s, target));
            if (newton > alpha && newton < high_[l]) next = newton;
        } else {
            high_[l] = std::min(high_[l], pivot_[l]);
        }
        if (!(next >= low_[l] && next < high_[l]) || next == pivot_[l]) return leave(l);
        pivot_[l] = next;
    }

    void leave(std::size_t l) {
        searching_[l] = false;
        --active_;
    }

    std::size_t n_;
    std::vector<T> entries_;
    double sum_[width], squares_[width], reference_[width];
    T ties_[width], low_[width], high_[width], pivot_[width], below_[width], above_[width];
    bool searching_[width];
    int active_ = 0;
};

}  // namespace hoyer::inline HOYER_ISA
