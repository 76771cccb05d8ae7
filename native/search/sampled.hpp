// The fast search: a bracket for alpha from a sample (or from moments), one pass over the data, an exact solution
// within.
//
// The sample is solved for K scaled by its share; a few standard errors to either side make the bracket. One pass
// appends what lies inside to a buffer and sums what lies above it. The exact search then runs on the buffer alone; its
// result is accepted only if it lies inside the bracket, which proves it.
//
// Where the tail is heavy, a few entries that a sample has or lacks decide where its alpha is. Then the first pass
// takes the largest entries, a few per cent. Mostly alpha is among them. Otherwise they are known for certain, the
// sample tells about the others, and a second pass follows.
//
// Whatever else happens (structure that the sample missed), the rough search runs on the whole vector, and after that
// the full one: there is no second sample.
//
// Sample and pass go by a mask where there is one; every other search works on the entries that count, packed.
#pragma once

#include "scratch.hpp"
#include "search/rough.hpp"
#include "simd/masks.hpp"
#include "write.hpp"

namespace hoyer::inline HOYER_ISA {

template <bool Signed, class T> class Sampled {
public:
    // What came of it. Whether the vector is finite is known after the pass over the data, if there was one.
    enum class Outcome { found, not_finite, missed };

    // With a mask `x` is not asked for, and n entries count.
    Sampled(const T* x, std::size_t n, const ClosedForm& form, const SamplingRules& rules,
            MaskedVector<T>* masked = nullptr)
        : x_(x), n_(n), places_(n), form_(form), rules_(rules), masked_(masked) {
        if (!masked) return;
        x_ = masked->x;
        mask_ = masked->mask;
        places_ = masked->places;
    }

    Outcome run() {
        const std::size_t shortest = rules_.rough ? rules_.shortest_bracket : rules_.shortest;
        if (form_.l1_alone && n_ >= shortest && n_ <= longest_tops && bracket_by_tops()) {
            const Outcome outcome = search();
            if (outcome != Outcome::missed) return outcome;
        }
        if (n_ >= rules_.shortest) {
            draw();
            Sight sight = look();
            if (sight == Sight::crowded || (sight == Sight::bracket && wide()) ||
                (sight == Sight::heavy && far_below_tops())) {
                const bool heavy = sight == Sight::heavy;
                if (aim(0)) {
                    heavy_ = heavy;
                    sight = Sight::bracket;
                }
            }
            if (sight == Sight::whole || whole_) return Outcome::missed;
            if (sight == Sight::bracket || (sight == Sight::heavy && bracket_of_tops())) {
                const Outcome outcome = search();
                if (outcome != Outcome::missed || !rules_.rough || whole_) return outcome;
                // Where the sample deceived, what was seen since says better where alpha is.
                if (largest_ > 0) {
                    pack();
                    return search_all(start_, Signed ? T(0) : -largest_, largest_);
                }
            }
        }
        if (!rules_.rough) return Outcome::missed;
        pack();
        const RoughSurvey<T> seen = rough_survey_of_all();
        ahead = {};
        reads += 1;
        // Whole supports are left to the full search: zeros may have to stay out of them.
        if (!seen.ordinary || maybe_whole(seen, form_)) return Outcome::missed;
        const Start start = rough_start(seen, form_);
        if (n_ >= rules_.shortest) {
            const bool known = trusted_ && start_ > seen.min && start_ < seen.max;
            return search_all(known ? start_ : static_cast<T>(start.pivot), seen.min, seen.max);
        }
        if (n_ >= rules_.shortest_bracket && rough_bracket(seen, start)) {
            const Outcome outcome = search();
            if (outcome != Outcome::missed) return outcome;
        }
        return search_all(static_cast<T>(start.pivot), seen.min, seen.max);
    }

    Ahead ahead;

    Support<T> support;
    double reads = 0;    // of the whole vector
    Entries<T> entries;  // where the support is, if it is so small that this was noted

private:
    static constexpr std::size_t line = 64 / sizeof(T);
    static constexpr std::size_t longest_tops = std::size_t{1} << 16;  // longer vectors are not read for a bound alone
    static constexpr T infinity = std::numeric_limits<T>::infinity();

    // Leaves nothing but the entries that count.
    void pack() {
        if (!mask_) return;
        x_ = masked_->pack();
        mask_ = nullptr;
        places_ = n_;
    }

    RoughSurvey<T> rough_survey_of_all() const {
        const Address read = ahead.read, written = ahead.written;
        if (!read && !written) return rough_survey<Signed>(x_, n_);
        return rough_survey<Signed, true>(x_, n_, {read ? read : written, written ? written : read});
    }

    // So large that reading it is cheap beside the vector, and its bracket holds few enough entries.
    std::size_t sample_size() const {
        constexpr std::pair<int, std::size_t> sizes[] = {{15, 512}, {18, 1024}, {22, 4096}, {24, 16384}, {25, 65536}};
        for (const auto& [bits, size] : sizes)
            if (n_ >> bits == 0) return size;
        return 262144;
    }

    // Stratified: one cache line out of each of equally many, at a place that no period of the data follows. Those with
    // a mask are as many more as it leaves fewer entries; what is left of them, packed, is cut into lines again.
    void draw() {
        const std::size_t wanted = sample_size();
        const std::size_t strata = std::min(wanted / line * places_ / n_, places_ / line);
        sample_ = scratch<T, Use::sample>(2 * wanted + append_margin);
        const double stratum = static_cast<double>(places_ / line) / static_cast<double>(strata);
        constexpr double golden = 0.6180339887498949;
        double place = 0.5;
        std::size_t size = 0;
        for (std::size_t i = 0; i < strata && size + line <= 2 * wanted; ++i) {
            place += golden;
            place -= static_cast<double>(place >= 1);
            const std::size_t from = static_cast<std::size_t>((static_cast<double>(i) + place) * stratum) * line;
            if (mask_)
                size += hoyer::pack(x_ + from, mask_ + from, line, sample_ + size);
            else
                size = static_cast<std::size_t>(std::copy_n(x_ + from, line, sample_ + size) - sample_);
        }
        lines_ = size / line;
        for (std::size_t i = 0; i < size; ++i) sample_[i] = magnitude<Signed>(sample_[i]);
    }

    double sampled() const { return static_cast<double>(lines_ * line); }
    // Far less than what a sample can be off by.
    double near() const { return 0.02 * std::sqrt(seen_.variance / sampled()); }

    // What the sample shows: a bracket; one with more entries than the buffer has room for; that its tail is too heavy
    // for one; that all entries are the support, which is left to the full search; or nothing.
    enum class Sight { bracket, crowded, heavy, whole, none };

    Sight look() {
        const std::size_t size = lines_ * line;
        // Where a mask leaves long runs of entries, a sample may miss them, or have more of them than there is room
        // for.
        if (2 * size < sample_size() || size + line > 2 * sample_size()) return Sight::none;
        seen_ = rough_survey<false>(sample_, size);
        if (!seen_.ordinary) return Sight::none;
        const Sight sight = bracket_by_share();
        if (sight == Sight::none && form_.l1_alone && n_ > longest_tops) {
            // Those of the sample, where the vector is too long to be read for that alone.
            bracket_by(Tops::template of<false, false>(sample_, nullptr, size));
        } else if (sight != Sight::bracket) {
            return sight;
        }
        const bool has_below = bracket_.low > seen_.min, readable = has_below && choose_reading(0);
        if (concentrated_ && !(readable && !bracket_.two_sided())) return Sight::heavy;
        return readable ? Sight::bracket : has_below ? Sight::crowded : Sight::none;
    }

    // How the vector is to be read for this bracket; false if that would be too much for the buffer. `larger` entries
    // of the sample are no longer among it.
    bool choose_reading(double larger) {
        const std::size_t size = lines_ * line;
        const double share = sampled() / static_cast<double>(n_);
        // Summing what lies above costs more than appending it, unless it is much.
        const double inside = rough_support<false>(sample_, size, bracket_.low).sums.count + larger,
                     above = rough_support<false>(sample_, size, bracket_.high).sums.count + larger;
        const auto expected = [&](double sampled) { return (sampled + 4 * std::sqrt(sampled) + 16) / share; };
        const auto fits = [&](double entries, std::size_t bytes) {
            return entries + block_size + append_margin < static_cast<double>(rules_.buffer_bytes / bytes);
        };
        double needed = expected(inside);
        if (inside < 0.08 * static_cast<double>(size) && fits(needed, sizeof(T)))
            bracket_.high = infinity;
        else
            needed = expected(inside - above);
        if (!fits(needed, sizeof(T))) return false;
        constexpr std::size_t with_position = sizeof(T) + sizeof(std::int64_t);
        const bool rare = inside < rules_.rare * static_cast<double>(size) && fits(needed, with_position);
        const bool little = inside < 0.05 * static_cast<double>(size);
        how_ = bracket_.two_sided() ? Reading::two_sided
               : rare               ? Reading::rare
               : little             ? Reading::little
                                    : Reading::much;
        // Twice what is expected, and for parts side by side (there are 256 at most) a few blocks each, if that is to
        // be had.
        const std::size_t bytes = how_ == Reading::rare ? with_position : sizeof(T);
        const std::size_t wanted =
            std::max(static_cast<std::size_t>(2 * needed) + 2 * block_size, places_ / part_size * 4 * block_size);
        capacity_ = std::min(rules_.buffer_bytes / bytes, wanted);
        between_ = bracket_.two_sided() ? (inside - above) / static_cast<double>(size) : 0;
        return true;
    }

    // Whether there is so much between both ends that a reading to bring them nearer costs less than to take it.
    bool wide() const { return between_ > 0.13; }

    // Whether alpha, by a sample that has too large entries for a bracket, is no matter of the largest few per cent.
    bool far_below_tops() const { return trusted_ && sampled_count_ > 0.09 * static_cast<double>(lines_ * line); }

    // Brings both ends near alpha by sums over the vector itself, in its own arithmetic, from the sample's alpha on:
    // such a reading costs less than half of one that takes entries. False, and the bracket is what it was, if it comes
    // to nothing; `whole_` may have been found then. `larger`: as in `choose_reading`.
    bool aim(double larger) {
        if (mask_ || !rules_.rough) return false;
        const Bracket<T> given = bracket_;
        double low = -HUGE_VAL, high = HUGE_VAL;
        double count_before = 0, before = 0;
        T pivot = start_;
        // Invariant, up to rounding: low <= alpha* <= high. Three readings at most.
        for (int round = 0; round < 3; ++round) {
            const RoughSupport<T> s = rough_support<Signed>(x_, n_, pivot);
            reads += 1;
            const auto [count, sum, squares] = s.sums;
            if (!(count > 0)) break;  // above all entries
            const double at = pivot, mean = sum / count, margin = 8 * RoughRules::resolution * mean;
            const Fit<double> fit = form_.fit(count, at + mean, squares - mean * sum);
            double upper = high, next = at + form_.newton(count, sum, squares);
            if (fit.excess > 0) {
                // How many entries of the vector lie between the pivot and the exact step: as many as the sample says,
                // or as the last two counts do.
                const double distance = std::fabs(fit.step - at), each = static_cast<double>(n_) / sampled();
                const double seen = between(std::min(fit.step, at), std::max(fit.step, at));
                const double counted = round == 0 ? 0 : distance * std::fabs((count - count_before) / (at - before));
                next = fit.step + shortfall(at, fit, std::max(each * (seen + 0.5), counted));
                upper = fit.step + shortfall(at, fit, std::max(each * (seen + 2 * std::sqrt(seen) + 3), 2 * counted)) +
                        margin;
                low = std::max(low, fit.step - margin);
                if (fit.step <= at) high = std::min(high, at + margin);
                upper = std::min(upper, high);
            } else {
                upper = high = std::min(high, at);
            }
            count_before = count;
            before = at;
            bracket_ = {static_cast<T>(low), static_cast<T>(upper), at + mean};
            if (between(low, upper) <= 0.03 * sampled() && bracket_.low > seen_.min && choose_reading(larger)) {
                start_ = static_cast<T>(std::min(next, upper));
                return true;
            }
            whole_ = next <= static_cast<double>(seen_.min);
            if (whole_ || !(next > low && next < high)) break;
            pivot = static_cast<T>(next);
        }
        bracket_ = given;
        return false;
    }
    // How many entries of the sample lie between two numbers.
    double between(double low, double high) const {
        const std::size_t size = lines_ * line;
        return count_above(sample_, size, static_cast<T>(low)) - count_above(sample_, size, static_cast<T>(high));
    }
    // By about how much the exact step from a pivot falls short of alpha. N entries between alpha and the pivot,
    // evenly, take N |alpha - pivot|/2 from the sum of distances from alpha, and a step that moves alpha by one takes
    // `excess` (of the support) from it. `entries`: how many lie between the pivot and the step.
    static double shortfall(double at, const Fit<double>& fit, double entries) {
        const double distance = std::fabs(fit.step - at), share = entries / (2 * fit.excess);
        // |alpha - pivot| is y: y = distance -+ share y^2/distance, where the step is below or above the pivot.
        if (fit.step <= at) return distance - 2 * distance / (1 + std::sqrt(1 + 4 * share));
        return 2 * distance / (1 + std::sqrt(std::max(1 - 4 * share, 0.0))) - distance;
    }

    // From the sample solved for its share of what is asked.
    Sight bracket_by_share() {
        const double size = sampled(), deviation = std::sqrt(seen_.variance);
        if (form_.too_few(size, rules_.fewest, deviation)) return Sight::none;
        if (!form_.fair(size, rules_.fewest)) return Sight::heavy;
        const ClosedForm form = form_.of_sample(size);
        if (form.k > 0.9 * size) return Sight::none;
        if (seems_whole()) return Sight::whole;
        const T start = static_cast<T>(rough_start(seen_, form).pivot);
        const Place<T> place =
            rough_search<false>(sample_, lines_ * line, form, start, seen_.min, seen_.max, nullptr, near());
        if (!place.found || place.count < rules_.fewest || place.count == size)
            return form_.l1_alone ? Sight::none : Sight::heavy;
        bracket_about(place, form);
        return Sight::bracket;
    }

    // Whether all entries are the support, even if the vector has the largest entry of the sample only once. Those that
    // the sample lacks are large, too, and lower the shift.
    bool seems_whole() const {
        const double size = sampled(), low = static_cast<double>(seen_.min), rest = 1 - size / static_cast<double>(n_);
        const double distance = static_cast<double>(seen_.max) - seen_.mean;
        const double mean = seen_.mean - rest * distance / size,
                     variance = seen_.variance - rest * distance * distance / size;
        return variance > 0 && form_.whole_step(mean, std::sqrt(variance)) < low - 0.25 * (mean - low);
    }

    // The bracket about the alpha of the sample.
    void bracket_about(const Place<T>& place, const ClosedForm& form) {
        start_ = static_cast<T>(place.alpha);
        trusted_ = true;
        sampled_count_ = place.count;
        const Scatter scatter = scatter_of_lines(place.alpha, form.influence(place.scale, place.count));
        const double error = rules_.standard_errors * scatter.error;
        bracket_ = {static_cast<T>(place.alpha - error), static_cast<T>(place.alpha + error), place.centre};
        // A single one of normal deviates rarely has more, and the error is mostly far below the standard
        // deviation.
        const double largest_share = 0.2 + 2 / static_cast<double>(lines_), most = std::sqrt(seen_.variance);
        concentrated_ = !form_.l1_alone && (scatter.largest_share > largest_share || error > most);
    }

    // A number that about `wanted` entries of the sample are above.
    T quantile(double wanted) const {
        T low = seen_.min, high = seen_.max;
        for (int round = 0; round < 24; ++round) {
            const T middle = halfway(low, high);
            const double above = count_above(sample_, lines_ * line, middle);
            if (above > 1.25 * wanted)
                low = middle;
            else if (above < 0.8 * wanted)
                high = middle;
            else
                return middle;
        }
        return low;
    }

    // The bracket that has the largest entries: a few per cent, or fewer where no more will be in the support.
    bool bracket_of_tops() {
        const double size = sampled(), n = static_cast<double>(n_);
        const double room = static_cast<double>(rules_.buffer_bytes / sizeof(T)) / 4 / n;
        const double wanted = std::min({8 + 4 * form_.k * size / n, size / 16, size * room});
        trusted_ = false;
        start_ = quantile(wanted);
        bracket_ = {start_, infinity, static_cast<double>(start_)};
        return choose_reading(0);
    }

    // The bracket where the sums of the entries above `top`, the lower end of the last one, are known: from the sample
    // without these.
    bool bracket_below(T top) {
        const EntrySums& tops = above_low_;
        heavy_ = true;
        const std::size_t size = lines_ * line;
        const double larger = count_above(sample_, size, top), n = static_cast<double>(n_);
        const double share = (sampled() - larger) / (n - tops.count);
        for (std::size_t i = 0; i < size; ++i) sample_[i] = sample_[i] > top ? -infinity : sample_[i];
        const ClosedForm form = form_.of_sample(share * n);
        const Summed<T> summed{Frame{static_cast<double>(top), 1, 1},
                               {share * tops.count, share * tops.sum, share * tops.squares},
                               -infinity,
                               next_above(top)};
        if (maybe_whole_below(form, summed)) {
            whole_ = true;
            return false;
        }
        const Place<T> place =
            rough_search<false>(sample_, size, form, next_below(top), seen_.min, top, &summed, near(), true);
        start_ = static_cast<T>(place.alpha);
        if (!place.found) return false;
        bracket_about(place, form);
        bracket_.high = std::min(bracket_.high, top);
        const bool readable = bracket_.low > seen_.min && choose_reading(larger);
        if (readable && !wide()) return true;
        return aim(larger) || (readable && !whole_);
    }
    bool maybe_whole_below(const ClosedForm& form, const Summed<T>& summed) const {
        const T pivot = next_below(seen_.min);
        RoughSupport<T> all = rough_support<false>(sample_, lines_ * line, pivot);
        add_summed(all, pivot, summed);
        const auto [count, sum, squares] = all.sums;
        const double mean = sum / count;
        return !(form.fit(count, pivot + mean, squares - mean * sum).step > static_cast<double>(seen_.min));
    }

    // The largest entries in each place of some registers.
    struct Tops {
        static constexpr std::size_t chains = 4, size = chains * width<T>;
        T values[size];

        template <bool S, bool Masked> static Tops of(const T* x, Mask mask, std::size_t n) {
            Vec<T> tops[chains];
            std::fill_n(tops, chains, splat(-infinity));
            for_each_magnitudes<S, chains, Masked>(
                x, mask, n, -infinity, [&](Vec<T> v, std::size_t c, std::size_t) __attribute__((always_inline)) {
                    tops[c] = larger(v, tops[c]);
                });
            Tops result;
            for (std::size_t c = 0; c < chains; ++c) store(result.values + c * width<T>, tops[c]);
            return result;
        }
    };

    // From the largest entries, where l1 alone is given: the shift of any of the entries, for all of l1, is a lower
    // bound for certain. Returns how many of these lie above it.
    double bracket_by(const Tops& tops) {
        const double top = *std::max_element(tops.values, tops.values + Tops::size);
        // Every bound is better than the one before. No entry gets more than l1.
        double bound = top - form_.rho, above = 0;
        for (int round = 0; round < 5; ++round) {
            const T pivot = static_cast<T>(bound);
            const auto [count, sum, squares] = rough_part<false>(tops.values, Tops::size, pivot).sums;
            bound = static_cast<double>(pivot) + (sum - form_.rho) / count;
            above = count;
        }
        // Rounding may have raised it.
        constexpr double margin = 16 * static_cast<double>(std::numeric_limits<T>::epsilon());
        start_ = static_cast<T>(bound);
        bracket_ = {static_cast<T>(bound - margin * std::max(std::fabs(top), form_.rho)), infinity, bound};
        return above;
    }
    // Those of a vector short enough to be read twice; false where too many entries seem to lie above the bound. (Where
    // a share of the places has none, so many are there on average.)
    bool bracket_by_tops() {
        reads += 1;
        const double above = bracket_by(mask_ ? Tops::template of<Signed, true>(x_, mask_, places_)
                                              : Tops::template of<Signed, false>(x_, nullptr, n_));
        const double size = static_cast<double>(Tops::size), n = static_cast<double>(n_);
        if (!(above <= 0.75 * size)) return false;
        const double inside = -size * std::log1p(-above / size);
        const bool rare = inside < rules_.rare * n;
        how_ = rare ? Reading::rare : inside < 0.05 * n ? Reading::little : Reading::much;
        const std::size_t bytes = sizeof(T) + (rare ? sizeof(std::int64_t) : 0);
        capacity_ = std::min(rules_.buffer_bytes / bytes, n_ + block_size + append_margin);
        return std::isfinite(bracket_.low);
    }

    // For vectors too short to sample: a lower end from mean and standard deviation of all entries; false where most
    // entries would be above it.
    bool rough_bracket(const RoughSurvey<T>& seen, const Start& start) {
        const double deviation = std::sqrt(seen.variance);
        start_ = static_cast<T>(start.pivot);
        bracket_ = {static_cast<T>(start.pivot - form_.start_error(deviation) * deviation), infinity, start.centre};
        capacity_ = n_ + block_size + append_margin;
        how_ = Reading::much;
        return bracket_.low > seen.mean - 0.5 * deviation;
    }

    // Of the sample's alpha: its standard error, from the scatter between cache lines, and how much of that (squared)
    // is due to a single one.
    struct Scatter {
        double error, largest_share;
    };
    Scatter scatter_of_lines(double alpha, const Influence& by) const {
        const double lines = static_cast<double>(lines_);
        double sum = 0, squares = 0, low = HUGE_VAL, high = -HUGE_VAL;
        const Vec<T> origin = splat(static_cast<T>(alpha)), first = splat(static_cast<T>(by.first)),
                     second = splat(static_cast<T>(by.second));
        for (std::size_t i = 0; i < lines_; ++i) {
            Vec<T> influence{};
            for (std::size_t j = 0; j < line; j += width<T>) {
                const Vec<T> d = load(sample_ + i * line + j) - origin, t = d > 0 ? d : Vec<T>{};
                influence += t * (first + second * t);
            }
            const double one = sum_across<T>(influence) / static_cast<double>(line) - by.mean;
            sum += one;
            squares += one * one;
            low = std::min(low, one);
            high = std::max(high, one);
        }
        const double mean = sum / lines, scatter = squares - mean * sum, largest = std::max(mean - low, high - mean);
        return {std::sqrt(scatter / (lines * (lines - 1))) / std::fabs(by.slope), largest * largest / scatter};
    }

    // Without a bracket, on the vector itself, whose entries lie in [low, high].
    Outcome search_all(T start, T low, T high) {
        Survey<T> ends{};
        ends.min = low;
        ends.max = high;
        Search<Signed, T> search(x_, n_, form_, ends);
        if (heavy_) {
            // Beside the largest entries the others are lost in sums that are not of doubles.
            support = search.attempt(start, start, low);
        } else {
            const Place<T> place = rough_search<Signed>(x_, n_, form_, start, low, high);
            reads += place.reads;
            support = place.found ? search.confirm(place.pivot, place.centre, low)
                                  : search.attempt(static_cast<T>(place.alpha), place.alpha, low);
        }
        reads += static_cast<double>(search.evaluations);
        return accepted();
    }

    // With this bracket, and if alpha lies below it, once more with what is known then.
    Outcome search() {
        for (bool again : {true, false}) {
            Summed<T> above;
            std::size_t inside = 0;
            const Outcome outcome = take(inside, above);
            if (outcome != Outcome::found) return outcome;
            const Summed<T>* summed = bracket_.two_sided() ? &above : nullptr;
            if (solve(inside, summed)) return Outcome::found;
            // Without a sample nothing is known about what lies below.
            if (!again || lines_ == 0 || !rules_.rough) break;
            if (!lies_below(inside, summed) || !bracket_below(bracket_.low)) break;
        }
        return Outcome::missed;
    }

    // Whether alpha lies below the bracket, for certain but for rounding.
    bool lies_below(std::size_t inside, const Summed<T>* summed) {
        if (form_.l1_alone) return false;
        const T low = bracket_.low;
        RoughSupport<T> all{moments<false>(buffer_, inside, low, Frame{static_cast<double>(low), 1, 1}).sums.value()};
        if (summed) add_summed(all, low, *summed);
        above_low_ = all.sums;
        return !form_.reaches(above_low_.sum, above_low_.squares);
    }

    // Reads the vector: `found` if what lies inside the bracket is in the buffer.
    Outcome take(std::size_t& inside, Summed<T>& above) {
        reads += 1;
        BitsOf<T> largest = 0;
        const bool fits = mask_ ? read_as<true>(inside, largest, above) : read_as<false>(inside, largest, above);
        if (largest >= infinity_bits<T>) return Outcome::not_finite;
        // Where nothing is inside, what lies above says all.
        if (!fits || (inside == 0 && !bracket_.two_sided())) return Outcome::missed;
        largest_ = std::bit_cast<T>(largest);
        return Outcome::found;
    }

    // From what was taken; true if that is the solution.
    bool solve(std::size_t inside, const Summed<T>* summed) {
        Survey<T> ends{};
        ends.min = bracket_.low;
        ends.max = bracket_.two_sided() ? bracket_.high : Signed ? largest_ : rough_survey<false>(buffer_, inside).max;
        const T start = start_ < ends.max ? start_ : bracket_.low;
        const Place<T> place = inside > 0
                                   ? rough_search<false>(buffer_, inside, form_, start, ends.min, ends.max, summed)
                                   : Place<T>{true, ends.min, 0, bracket_.centre};
        if (!place.found) start_ = static_cast<T>(place.alpha);
        if (!place.found && !(start_ >= ends.min) && lies_below(inside, summed)) return false;
        Search<false, T> search(buffer_, inside, form_, ends, summed);
        const bool near = start_ >= ends.min && start_ < ends.max;
        support = place.found ? search.confirm(place.pivot, place.centre, ends.min)
                              : search.attempt(near ? start_ : start, bracket_.centre, ends.min);
        const bool found = accepted() == Outcome::found;
        if (how_ == Reading::rare && found) entries = {positions_, buffer_, inside};
        return found;
    }

    Outcome accepted() const {
        return support.count > 0 && support.count < static_cast<double>(n_) ? Outcome::found : Outcome::missed;
    }

    // What a part of the vector adds.
    struct Part {
        std::size_t inside = 0;
        BitsOf<T> largest = 0;
        TotalSums above;
        bool fits = true;
    };

    template <bool Masked> bool read_as(std::size_t& inside, BitsOf<T>& largest, Summed<T>& summed) {
        switch (how_) {
            case Reading::much:
                return read<Reading::much, Masked>(inside, largest, summed);
            case Reading::little:
                return read<Reading::little, Masked>(inside, largest, summed);
            case Reading::rare:
                return read<Reading::rare, Masked>(inside, largest, summed);
            case Reading::two_sided:
                return read<Reading::two_sided, Masked>(inside, largest, summed);
        }
        return false;
    }

    // One reading, in parts whose size depends on the length alone, so that the bits do not depend on the threads.
    template <Reading How, bool Masked> bool read(std::size_t& inside, BitsOf<T>& largest, Summed<T>& summed) {
        constexpr std::size_t most_parts = 256;
        part_size_ = std::max(part_size, (places_ / most_parts / block_size + 1) * block_size);
        const std::size_t parts = (places_ + part_size_ - 1) / part_size_;
        std::vector<Part> found(parts);
        buffer_ = scratch<T, Use::entries>(capacity_);
        if constexpr (How == Reading::rare) positions_ = scratch<std::int64_t, Use::entries>(capacity_);
        // Side by side every part has an equal share of the buffer; the entries are then moved together, in order.
        const auto take_parts = [&](bool side_by_side) {
            const std::size_t share = capacity_ / parts;
            auto work = [&](std::size_t i, bool) { found[i] = pass<How, Masked>(i, i * share, share); };
            if (side_by_side) for_each_task(parts, work);
            inside = 0;
            for (std::size_t i = 0; i < parts; ++i) {
                if (!side_by_side) found[i] = pass<How, Masked>(i, inside, capacity_ - inside);
                if (!found[i].fits) return false;
                if (side_by_side) std::copy_n(buffer_ + i * share, found[i].inside, buffer_ + inside);
                if (side_by_side && How == Reading::rare)
                    std::copy_n(positions_ + i * share, found[i].inside, positions_ + inside);
                inside += found[i].inside;
            }
            return true;
        };
        const bool together = parts > 1 && thread_count() > 1 && take_parts(true);
        if (!together && !take_parts(false)) return false;
        summed.frame = Frame{bracket_.centre, 1, 1};
        summed.low = bracket_.low;
        summed.above = next_above(bracket_.high);
        TotalSums above;
        for (const Part& part : found) {
            largest = std::max(largest, part.largest);
            above.add(part.above);
        }
        summed.sums = above.value();
        return true;
    }

    // A block's worth of what is wanted next, where that is not too much for the caches.
    void fetch_ahead(std::size_t begin) const {
        if (places_ * sizeof(T) > (std::size_t{1} << 18)) return;
        for (const Address place : {ahead.read, ahead.written}) {
            if (!place) continue;
            const Address at = place + begin * sizeof(T);
            for (std::size_t i = 0; i < block_size * sizeof(T); i += line_bytes) fetch(at + i);
        }
    }

    // Takes the entries of one part inside the bracket to the buffer, from place `at` on, at most `capacity`.
    template <Reading How, bool Masked> Part pass(std::size_t number, std::size_t at, std::size_t capacity) const {
        Part part;
        Taken<T> taken{};
        const std::size_t last = std::min(places_, (number + 1) * part_size_);
        constexpr std::size_t step = How == Reading::two_sided ? sum_block<T> : block_size;
        for (std::size_t begin = number * part_size_; begin < last; begin += step) {
            if (part.inside + block_size + append_margin > capacity) {
                part.fits = false;
                return part;
            }
            fetch_ahead(begin);
            taken.entries = buffer_ + at + part.inside;
            if constexpr (How == Reading::rare) taken.positions = positions_ + at + part.inside;
            part.inside += take_block<Signed, How, Masked>(x_ + begin, std::min(last - begin, step), bracket_,
                                                           static_cast<std::int64_t>(begin), taken,
                                                           Masked ? mask_ + begin : nullptr);
        }
        if constexpr (How == Reading::two_sided) part.above.add(taken.above());
        part.largest = largest_across<BitsOf<T>>(taken.largest);
        return part;
    }

    const T* x_;
    Mask mask_ = nullptr;
    std::size_t n_, places_;  // how many entries count, and how many there are
    const ClosedForm& form_;
    const SamplingRules& rules_;
    MaskedVector<T>* masked_;
    T *sample_ = nullptr, *buffer_ = nullptr;
    RoughSurvey<T> seen_{};  // of the sample
    std::int64_t* positions_ = nullptr;
    std::size_t lines_ = 0, capacity_ = 0, part_size_ = 0;
    Bracket<T> bracket_;
    T start_{};                  // where to look first
    bool trusted_ = false;       // whether the sample was large enough for that
    double between_ = 0;         // which share of the sample lies between both ends of the bracket
    double sampled_count_ = 0;   // how many entries of the sample are above its alpha
    bool concentrated_ = false;  // whether few lines of the sample decide where its alpha is
    EntrySums above_low_;        // of what lies above the lower end of the bracket, once that is known to be too high
    bool heavy_ = false;         // whether alpha was found to lie below the largest entries
    bool whole_ = false;         // whether all entries seem to be the support
    T largest_{};                // magnitude, once the vector has been read
    Reading how_ = Reading::much;
};

}  // namespace hoyer::inline HOYER_ISA
