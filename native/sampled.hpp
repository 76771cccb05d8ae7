// The fast search for long vectors: a bracket for alpha from a sample, one pass over the data, an exact solution within.
//
// The sample is solved for K scaled by its share; a few standard errors to either side make the bracket. One pass
// appends what lies inside to a buffer and sums what lies above it. The exact search then runs on the buffer alone; its
// result is accepted only if it lies inside the bracket, which proves it. Otherwise (heavy tails, structure that the
// sample missed, ties) the full search takes over: there is no second sample.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

#include "moments.hpp"
#include "search.hpp"
#include "simd.hpp"
#include "target.hpp"

namespace hoyer::inline HOYER_ISA {

// Memory for the sample and for the entries inside the bracket, kept by each thread.
template <class T> std::vector<T>& scratch() {
    thread_local std::vector<T> memory;
    return memory;
}

template <bool Signed, class T> class Sampled {
public:
    // What came of it. `finite` is only known after the pass over the data.
    enum class Outcome { found, not_finite, missed };

    Sampled(const T* x, std::size_t n, const Target& target, const SamplingRules& rules)
        : x_(x), n_(n), target_(target), rules_(rules) {}

    Outcome run() {
        if (n_ < rules_.shortest) return Outcome::missed;
        draw();
        if (!bracket()) return Outcome::missed;
        return search();
    }

    Support<T> support;
    double reads = 0;   // of the whole vector

private:
    static constexpr std::size_t line = 64 / sizeof(T);
    static constexpr T infinity = std::numeric_limits<T>::infinity();

    // Stratified: one cache line out of each of equally many, at a place that no period of the data follows.
    void draw() {
        const std::size_t wanted = n_ < (1u << 15) ? 512 : n_ < (1u << 18) ? 1024 : n_ < (1u << 22) ? 4096 : n_ < (1u << 25) ? 16384 : 65536;
        lines_ = wanted / line;
        std::vector<T>& memory = scratch<T>();
        if (memory.size() < wanted) memory.resize(wanted);
        sample_ = memory.data();
        const double stratum = static_cast<double>(n_ / line) / static_cast<double>(lines_);
        constexpr double golden = 0.6180339887498949;
        double place = 0.5;
        for (std::size_t i = 0; i < lines_; ++i) {
            place += golden;
            place -= static_cast<double>(place >= 1);
            const T* from = x_ + static_cast<std::size_t>((static_cast<double>(i) + place) * stratum) * line;
            for (std::size_t j = 0; j < line; ++j) sample_[i * line + j] = magnitude<Signed>(from[j]);
        }
    }

    // Solves the sample and sets the bracket; false where that is hopeless.
    bool bracket() {
        const std::size_t size = lines_ * line;
        const double share = static_cast<double>(size) / static_cast<double>(n_);
        const double k = std::max(target_.k * share, rules_.fewest);
        if (k > 0.9 * static_cast<double>(size)) return false;
        const Target target(static_cast<double>(size), std::sqrt(k), {static_cast<double>(size) - k, 0});
        const Survey<T> seen = survey<false>(sample_, size);
        if (!seen.finite || !(seen.max - seen.min > 1e-100 && seen.max < 1e100 && seen.min > -1e100)) return false;
        if (target.excess(seen.ties) >= 0) return false;
        const Support<T> s = Search<false, T>(sample_, size, target, seen).run(Solver::automatic);
        if (s.count == static_cast<double>(size)) return false;

        const double alpha = s.frame.back(s.exact_step(target));
        centre_ = s.frame.back(s.mean);
        const double error = rules_.standard_errors * standard_error(alpha, s.count);
        start_ = static_cast<T>(alpha);
        low_ = static_cast<T>(alpha - error);
        high_ = target_.k * share < rules_.fewest ? infinity : static_cast<T>(alpha + error);
        if (!(low_ > seen.min)) return false;

        // Summing what lies above costs more than appending it, unless it is much.
        double inside = 0, above = 0;
        for (std::size_t i = 0; i < size; ++i) {
            inside += sample_[i] > low_;
            above += sample_[i] > high_;
        }
        const auto expected = [&](double sampled) { return (sampled + 4 * std::sqrt(sampled) + 16) / share; };
        capacity_ = rules_.buffer_bytes / sizeof(T);
        double needed = expected(inside);
        if (inside < 0.08 * static_cast<double>(size) && needed < static_cast<double>(capacity_))
            high_ = infinity;
        else
            needed = expected(inside - above);
        if (needed > static_cast<double>(capacity_)) return false;
        capacity_ = std::min(capacity_, static_cast<std::size_t>(2 * needed));
        return true;
    }

    // Of alpha, by the delta method for g = E[t]^2/E[t^2], t = max(x - alpha, 0), from the scatter between cache lines.
    double standard_error(double alpha, double count) const {
        const double size = static_cast<double>(lines_ * line);
        double a = 0, b = 0;
        for (std::size_t i = 0; i < lines_ * line; ++i) {
            const double t = std::max(static_cast<double>(sample_[i]) - alpha, 0.0);
            a += t;
            b += t * t;
        }
        a /= size;
        b /= size;
        const double by_first = 2 * a / b, by_second = -a * a / (b * b);
        const double mean = by_first * a + by_second * b;
        double scatter = 0;
        for (std::size_t i = 0; i < lines_; ++i) {
            double influence = 0;
            for (std::size_t j = 0; j < line; ++j) {
                const double t = std::max(static_cast<double>(sample_[i * line + j]) - alpha, 0.0);
                influence += t * (by_first + by_second * t);
            }
            influence = influence / line - mean;
            scatter += influence * influence;
        }
        const double slope = by_first * (a * a / b - count / size);
        const double lines = static_cast<double>(lines_);
        return std::sqrt(scatter / (lines * (lines - 1))) / std::fabs(slope);
    }

    Outcome search() {
        std::vector<T>& memory = scratch<T>();
        if (memory.size() < capacity_ + block_size + append_margin)
            memory.resize(capacity_ + block_size + append_margin);
        reads = 1;
        Base<T> base;
        std::size_t inside = 0;
        BitsOf<T> largest = 0;
        const bool fits = high_ == infinity ? pass<false>(memory.data(), inside, largest, base)
                                            : pass<true>(memory.data(), inside, largest, base);
        if (largest >= infinity_bits<T>) return Outcome::not_finite;
        if (!fits || inside == 0) return Outcome::missed;
        Survey<T> seen = survey<false>(memory.data(), inside);
        const bool two_sided = high_ != infinity;
        if (two_sided) seen.max = high_;
        if (!two_sided && target_.excess(seen.ties) >= 0) return Outcome::missed;
        Search<false, T> search(memory.data(), inside, target_, seen, two_sided ? &base : nullptr);
        const T start = start_ < seen.max ? start_ : low_;
        support = search.attempt(start, centre_, low_);
        return support.count > 0 && support.count < static_cast<double>(n_) ? Outcome::found : Outcome::missed;
    }

    // One reading: appends the entries in (low, high], finds the largest magnitude and, if there are two sides, sums
    // what lies above. False if the buffer is full.
    template <bool TwoSided> bool pass(T* buffer, std::size_t& inside, BitsOf<T>& largest, Base<T>& base) {
        base.frame = Frame{centre_, 1, 1};
        base.low = low_;
        base.above = std::nextafter(high_, infinity);
        Accumulator count, sum, squares;
        BitsOf<T> tops[lane_count]{};
        for (std::size_t begin = 0; begin < n_; begin += block_size) {
            const std::size_t size = std::min(n_ - begin, block_size);
            const T* x = x_ + begin;
            if (inside > capacity_) return false;
            inside += append_between<Signed>(x, size, low_, high_, buffer + inside);
            std::size_t i = 0;
            for (; i + lane_count <= size; i += lane_count)
                for (std::size_t j = 0; j < lane_count; ++j) tops[j] = std::max(tops[j], size_bits(x[i + j]));
            for (; i < size; ++i) tops[0] = std::max(tops[0], size_bits(x[i]));
            if constexpr (TwoSided) add_above(x, size, count, sum, squares);
        }
        largest = *std::max_element(tops, tops + lane_count);
        base.count = count.value();
        base.sum = sum.value();
        base.sum_of_squares = squares.value();
        return true;
    }

    HOYER_INLINE void add_above(const T* x, std::size_t size, Accumulator& count, Accumulator& sum,
                                Accumulator& squares) const {
        const T high = high_;
        const double centre = centre_;
        double s1[lane_count]{}, s2[lane_count]{};
        T counts[lane_count]{};
        const auto body = [&](T entry, std::size_t j) __attribute__((always_inline)) {
            const T v = magnitude<Signed>(entry);
            const bool in = v > high;
            const double t = in ? static_cast<double>(v) - centre : 0.0;
            s1[j] += t;
            s2[j] += t * t;
            counts[j] += in ? T(1) : T(0);
        };
        std::size_t i = 0;
        for (; i + lane_count <= size; i += lane_count)
            for (std::size_t j = 0; j < lane_count; ++j) body(x[i + j], j);
        for (std::size_t j = 0; i < size; ++i, ++j) body(x[i], j);
        double total = 0;
        for (std::size_t j = 0; j < lane_count; ++j) total += static_cast<double>(counts[j]);
        count.add(total);
        sum.add(add_lanes(s1));
        squares.add(add_lanes(s2));
    }

    const T* x_;
    std::size_t n_;
    const Target& target_;
    const SamplingRules& rules_;
    T* sample_ = nullptr;
    std::size_t lines_ = 0, capacity_ = 0;
    T start_{}, low_{}, high_{};
    double centre_ = 0;
};

}  // namespace hoyer::inline HOYER_ISA
