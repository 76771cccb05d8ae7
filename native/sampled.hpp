// The fast search: a bracket for alpha from a sample (or from moments), one pass over the data, an exact solution within.
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
#include <memory>
#include <utility>
#include <vector>

#include "moments.hpp"
#include "pool.hpp"
#include "search.hpp"
#include "simd.hpp"
#include "target.hpp"

namespace hoyer::inline HOYER_ISA {

// Memory for the sample and for the entries inside the bracket, kept by each thread. It is not filled with anything, so
// that only what is used takes space.
template <class T> T* scratch(std::size_t size) {
    thread_local std::unique_ptr<T[]> memory;
    thread_local std::size_t available = 0;
    if (available < size) {
        memory.reset();
        memory = std::make_unique_for_overwrite<T[]>(size);
        available = size;
    }
    return memory.get();
}

template <bool Signed, class T> class Sampled {
public:
    // What came of it. `finite` is only known after the pass over the data.
    enum class Outcome { found, not_finite, missed };

    Sampled(const T* x, std::size_t n, const Target& target, const SamplingRules& rules)
        : x_(x), n_(n), target_(target), rules_(rules) {}

    Outcome run() {
        if (n_ >= rules_.shortest) {
            draw();
            return bracket() ? search() : Outcome::missed;
        }
        if (n_ < rules_.shortest_rough) return Outcome::missed;
        reads = 1;
        return rough_bracket() ? search() : Outcome::missed;
    }

    Support<T> support;
    double reads = 0;   // of the whole vector
    // If set: receives, for every block of the vector, whether it may have entries of the support.
    std::vector<char>* touched = nullptr;

private:
    static constexpr std::size_t line = 64 / sizeof(T);
    static constexpr std::size_t part_size = std::size_t{1} << 18;
    static constexpr T infinity = std::numeric_limits<T>::infinity();

    // So large that reading it is cheap beside the vector, and its bracket holds few enough entries.
    std::size_t sample_size() const {
        constexpr std::pair<std::size_t, std::size_t> sizes[] = {
            {std::size_t{1} << 15, 512},   {std::size_t{1} << 18, 1024},  {std::size_t{1} << 22, 4096},
            {std::size_t{1} << 24, 16384}, {std::size_t{1} << 25, 65536},
        };
        for (const auto& [below, size] : sizes)
            if (n_ < below) return size;
        return 262144;
    }

    // Stratified: one cache line out of each of equally many, at a place that no period of the data follows.
    void draw() {
        const std::size_t wanted = sample_size();
        lines_ = wanted / line;
        sample_ = scratch<T>(wanted);
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
        const double least = seen.min, most = seen.max;
        if (!seen.finite || !(most - least > 1e-100 && most < 1e100 && least > -1e100)) return false;
        if (target.excess(seen.ties) >= 0) return false;
        const Support<T> s = Search<false, T>(sample_, size, target, seen).run(Solver::automatic);
        if (s.count == static_cast<double>(size)) return false;

        const double alpha = s.frame.back(s.exact_step(target));
        centre_ = s.frame.back(s.mean);
        const double error = rules_.standard_errors * standard_error(alpha, s.scale(target), target, s.count);
        start_ = static_cast<T>(alpha);
        low_ = static_cast<T>(alpha - error);
        high_ = target_.k * share < rules_.fewest ? infinity : static_cast<T>(alpha + error);
        if (!(low_ > seen.min)) return false;

        // Summing what lies above costs more than appending it, unless it is much.
        int counts[2] = {0, 0};
        for (std::size_t i = 0; i < size; ++i) {
            counts[0] += sample_[i] > low_;
            counts[1] += sample_[i] > high_;
        }
        const double inside = counts[0], above = counts[1];
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

    // For vectors too short to sample: a lower end from mean and standard deviation of all entries, as if they were normal
    // (or their tail uniform). Rough sums in the type of the data do: nothing but a starting point depends on them.
    bool rough_bracket() {
        T s1[lane_count]{}, s2[lane_count]{}, high[lane_count];
        std::fill_n(high, lane_count, magnitude<Signed>(x_[0]));
        const auto body = [&](T entry, std::size_t j) __attribute__((always_inline)) {
            const T v = magnitude<Signed>(entry);
            s1[j] += v;
            s2[j] += v * v;
            high[j] = v > high[j] ? v : high[j];
        };
        std::size_t i = 0;
        for (; i + lane_count <= n_; i += lane_count)
            for (std::size_t j = 0; j < lane_count; ++j) body(x_[i + j], j);
        for (std::size_t j = 0; i < n_; ++i, ++j) body(x_[i], j);
        double sum = 0, squares = 0;
        for (std::size_t j = 0; j < lane_count; ++j) sum += s1[j], squares += s2[j];
        const double n = static_cast<double>(n_), mean = sum / n, variance = squares / n - mean * mean;
        // Also false for NaN and infinity, which the full search reports.
        if (!(variance > 1e-6 * mean * mean && variance < 1e30 && variance > 1e-30)) return false;
        const double deviation = std::sqrt(variance), top = largest_lane(high);
        const Start start = normal_start(target_.k / n);
        const double uniform = top - (top - mean) * std::min(1.0, 8 * target_.k / (3 * n));
        const double guess = std::min(mean + start.pivot * deviation, uniform);
        start_ = static_cast<T>(guess);
        low_ = static_cast<T>(guess - (0.15 + 1 / std::sqrt(target_.k) + 0.5 * target_.k / n) * deviation);
        high_ = infinity;
        centre_ = std::min(mean + start.centre * deviation, top);
        capacity_ = n_;
        // With most entries above it there is nothing to gain.
        return low_ > mean - 0.5 * deviation;
    }

    // Of alpha, by the delta method for g = E[t]^2/E[t^2], t = max(x - alpha, 0), from the scatter between cache lines.
    double standard_error(double alpha, double scale, const Target& target, double count) const {
        const double size = static_cast<double>(lines_ * line), lines = static_cast<double>(lines_);
        // t = scale * p with p of unit norm.
        const double a = scale * target.rho / size, b = scale * scale / size;
        const double by_first = 2 * a / b, by_second = -a * a / (b * b);
        const double mean = by_first * a + by_second * b;
        double scatter = 0;
        for (std::size_t i = 0; i < lines_; ++i) {
            double influence[line];
            for (std::size_t j = 0; j < line; ++j) {
                const double d = static_cast<double>(sample_[i * line + j]) - alpha, t = d > 0 ? d : 0;
                influence[j] = t * (by_first + by_second * t);
            }
            for (std::size_t half = line / 2; half > 0; half /= 2)
                for (std::size_t j = 0; j < half; ++j) influence[j] += influence[j + half];
            const double deviation = influence[0] / line - mean;
            scatter += deviation * deviation;
        }
        const double slope = by_first * (a * a / b - count / size);
        return std::sqrt(scatter / (lines * (lines - 1))) / std::fabs(slope);
    }

    Outcome search() {
        reads += 1;
        // Blocks are known only where everything above the bracket is appended too.
        if (high_ != infinity) touched = nullptr;
        if (touched) touched->assign((n_ + block_size - 1) / block_size, 0);
        Base<T> base;
        std::size_t inside = 0;
        BitsOf<T> largest = 0;
        const bool fits = high_ == infinity ? read<false>(inside, largest, base) : read<true>(inside, largest, base);
        if (largest >= infinity_bits<T>) return Outcome::not_finite;
        if (!fits || inside == 0) return Outcome::missed;
        const bool two_sided = high_ != infinity;
        Survey<T> seen{};
        seen.min = low_;
        seen.max = two_sided ? high_ : largest_of(buffer_, inside);
        if (!two_sided) {
            std::size_t ties = 0;
            for (std::size_t i = 0; i < inside; ++i) ties += buffer_[i] == seen.max;
            if (target_.excess(static_cast<double>(ties)) >= 0) return Outcome::missed;
        }
        Search<false, T> search(buffer_, inside, target_, seen, two_sided ? &base : nullptr);
        const T start = start_ < seen.max ? start_ : low_;
        support = search.attempt(start, centre_, low_);
        return support.count > 0 && support.count < static_cast<double>(n_) ? Outcome::found : Outcome::missed;
    }

    static T largest_of(const T* x, std::size_t n) {
        T high[lane_count];
        std::fill_n(high, lane_count, x[0]);
        std::size_t i = 0;
        for (; i + lane_count <= n; i += lane_count)
            for (std::size_t j = 0; j < lane_count; ++j) high[j] = x[i + j] > high[j] ? x[i + j] : high[j];
        for (; i < n; ++i) high[0] = x[i] > high[0] ? x[i] : high[0];
        return largest_lane(high);
    }

    // What a part of the vector adds.
    struct Part {
        std::size_t inside = 0;
        BitsOf<T> largest = 0;
        Accumulator count, sum, squares;
        bool fits = true;
    };

    // One reading, in parts of a fixed size so that the bits do not depend on the number of threads.
    template <bool TwoSided> bool read(std::size_t& inside, BitsOf<T>& largest, Base<T>& base) {
        const std::size_t parts = (n_ + part_size - 1) / part_size;
        std::vector<Part> found(parts);
        const auto one_after_the_other = [&] {
            buffer_ = scratch<T>(capacity_ + block_size + append_margin);
            inside = 0;
            for (std::size_t i = 0; i < parts; ++i) {
                found[i] = pass<TwoSided>(i, buffer_ + inside, capacity_ - inside);
                inside += found[i].inside;
                if (!found[i].fits) return false;
            }
            return true;
        };
        // Side by side every part has room for twice its share; the entries are then moved together, in order.
        const auto side_by_side = [&] {
            const std::size_t share = 2 * capacity_ / parts, region = share + block_size + append_margin;
            buffer_ = scratch<T>(parts * region);
            auto work = [&](std::size_t i, bool) { found[i] = pass<TwoSided>(i, buffer_ + i * region, share); };
            for_each_task(parts, work);
            inside = 0;
            for (std::size_t i = 0; i < parts; ++i) {
                if (!found[i].fits || inside + found[i].inside > capacity_) return false;
                std::copy_n(buffer_ + i * region, found[i].inside, buffer_ + inside);
                inside += found[i].inside;
            }
            return true;
        };
        const bool together = parts > 1 && thread_count() > 1 && side_by_side();
        if (!together && !one_after_the_other()) return false;
        base.frame = Frame{centre_, 1, 1};
        base.low = low_;
        base.above = std::nextafter(high_, infinity);
        Accumulator count, sum, squares;
        for (const Part& part : found) {
            largest = std::max(largest, part.largest);
            count.add(part.count.value());
            sum.add(part.sum.value());
            squares.add(part.squares.value());
        }
        base.count = count.value();
        base.sum = sum.value();
        base.sum_of_squares = squares.value();
        return true;
    }

    // Appends the entries of one part in (low, high], finds its largest magnitude and, if there are two sides, sums what
    // lies above. `room` entries fit; the buffer is a block larger.
    template <bool TwoSided> Part pass(std::size_t number, T* buffer, std::size_t room) const {
        Part part;
        BitsOf<T> tops[lane_count]{};
        const std::size_t last = std::min(n_, (number + 1) * part_size);
        for (std::size_t begin = number * part_size; begin < last; begin += block_size) {
            const std::size_t size = std::min(last - begin, block_size);
            const T* x = x_ + begin;
            const std::size_t added = append_between<Signed>(x, size, low_, high_, buffer + part.inside);
            if (touched && added) (*touched)[begin / block_size] = 1;
            part.inside += added;
            if (part.inside > room) {
                part.fits = false;
                return part;
            }
            std::size_t i = 0;
            for (; i + lane_count <= size; i += lane_count)
                for (std::size_t j = 0; j < lane_count; ++j) tops[j] = std::max(tops[j], size_bits(x[i + j]));
            for (; i < size; ++i) tops[0] = std::max(tops[0], size_bits(x[i]));
            if constexpr (TwoSided) {
                const BlockSums block = sums_above<Signed, false, T>(x, size, high_, centre_, nullptr);
                part.count.add(block.count);
                part.sum.add(block.sum);
                part.squares.add(block.sum_of_squares);
            }
        }
        part.largest = largest_lane(tops);
        return part;
    }

    const T* x_;
    std::size_t n_;
    const Target& target_;
    const SamplingRules& rules_;
    T *sample_ = nullptr, *buffer_ = nullptr;   // the same memory, one after the other
    std::size_t lines_ = 0, capacity_ = 0;
    T start_{}, low_{}, high_{};
    double centre_ = 0;
};

}  // namespace hoyer::inline HOYER_ISA
