// Short vectors: as many as a register has entries, side by side, one vector per lane.
//
// They may differ in length, as masks leave them; lanes of shorter ones are filled up with -infinity, which is above no
// pivot. All lanes take the same steps together: survey, start, evaluations in the arithmetic of the data, and one
// confirming evaluation in double. What is ordinary is decided here; ends of the range, ties, whole supports, NaN,
// doubt and slow searches are left to the full search, one vector at a time.
//
// Of longer vectors most entries are small: those are surveyed and summed once where they lie, and only what is above
// the lower bound found there gets a place in the lanes.
#pragma once

#include "search/rough.hpp"
#include "write.hpp"

namespace hoyer::inline HOYER_ISA {

// Sums run through the vector one entry after the other: harmless for float in double, and for a few doubles.
template <class T> constexpr std::size_t longest_lane = sizeof(T) == 4 ? 2048 : 48;

// Which of the norms are upper bounds.
enum class Bounds { none, l1, both };

template <bool Signed, class T> class LaneGroup {
public:
    static constexpr std::size_t lanes = width<T>;

    // For vectors of at most this length.
    LaneGroup(std::size_t longest, const SamplingRules& rules)
        : capacity_(longest), rules_(rules), entries_(allocate((longest + 2 * lanes) * lanes)), starts_(longest + 1) {}

    // What is asked of the lanes; it holds until it is set again. All forms are of one kind.
    void aim(const ClosedForm (&forms)[lanes], Bounds bounds) {
        bounds_ = bounds;
        rough_.l1_alone = forms[0].l1_alone;
        largest_share_ = 0;
        for (std::size_t l = 0; l < lanes; ++l) {
            const ClosedForm& form = forms[l];
            largest_share_ = std::max(largest_share_, form.k / form.n);
            rough_.rho[l] = static_cast<T>(form.rho);
            rough_.k[l] = static_cast<T>(form.k);
            if (!form.l1_alone) start_[l] = start_of(form);
            rho_.set(l, form.rho);
            slack_.set(l, form.slack.hi);
            slack_low_.set(l, form.slack.lo);
        }
    }

    // How long the vectors are, length(l) in lane l. Where they differ, a register more of each can be read than the
    // longest one has.
    template <class Length> HOYER_INLINE void measure(Length length) {
        n_ = 0;
        shortest_ = capacity_;
        T sizes[lanes];
        double wide[lanes];
        for (std::size_t l = 0; l < lanes; ++l) {
            const std::size_t n = lengths_[l] = length(l);
            n_ = std::max(n_, n);
            shortest_ = std::min(shortest_, n);
            sizes[l] = static_cast<T>(n);
            wide[l] = static_cast<double>(n);
        }
        sizes_ = load(sizes);
        for (std::size_t j = 0; j < parts; ++j) wide_sizes_.part[j] = load(wide + j * width<double>);
        // Where the choice is between lanes and none, sifting pays for larger supports, too.
        const double share = n_ <= longest_whole ? rules_.sifted_share : 2 * rules_.sifted_share;
        sifts_ = n_ >= rules_.shortest_sifted && largest_share_ <= share;
        if (sifts_ && rough_.l1_alone) highest_share_ = static_cast<T>(mean_table().pivot_below(share));
        if (sifts_ && !sifted_) sifted_.reset(allocate(sifted_length() * lanes));
    }

    // Whether a group is faster than its vectors one at a time, for what it aims at.
    bool pays() const { return sifts_ || n_ <= longest_whole; }

    // Finds the supports of vectors that are contiguous each; false if they are better searched one at a time.
    // Meanwhile a group's worth of memory comes to the caches from both places.
    bool solve(const T* const (&x)[lanes], const Ahead& ahead) {
        if (sifts_) {
            survey_rows(x, ahead.read);
        } else {
            put_whole(x);
            survey(ahead.read);
        }
        pivot_ = start();
        const bool few = sifts_ && (!rough_.l1_alone || mostly_small());
        if (sifts_ && !few && n_ > longest_whole) return false;
        if (few)
            sift(x, ahead.written);
        else if (sifts_)
            put_whole(x);
        search(few ? 0 : ahead.written);
        confirm();
        return true;
    }

    // Forms what makes the results from the entries; `found` is then false where that is out of the ordinary as well.
    void finish(NormRule rule, const Wide<T>& l2) {
        if (rule == NormRule::keep) rounds_ += T(1);  // the norms are a read, too
        for (std::size_t j = 0; j < parts; ++j) {
            const Vec<double> m = mean_.part[j], size = scale_.part[j], r = reference_.part[j], rho = rho_.part[j];
            const Vec<double> base = rho / count_.part[j], gain = 1 / size, alpha = r + (m - size * base);
            norm_.part[j] = rule == NormRule::nearest ? rho * (r + m) + spread_.part[j] * gain : l2.part[j];
            const Vec<double> norm = rough_.l1_alone ? splat(1.0) : norm_.part[j], data_scale = size / norm;
            const auto good = (norm > 1e-30) & (norm < 1e30) & (data_scale > 1e-30) & (data_scale < 1e30) &
                              (alpha > -1e30) & (alpha < 1e30);
            Vec<double> sure = good ? certain_.part[j] : Vec<double>{};
            if (rough_.l1_alone) {
                // Squares of other numbers may vanish or overflow.
                sure = (rho > 1e-30) & (rho < 1e30) ? sure : Vec<double>{};
                norm_.part[j] = root(rho * base + spread_.part[j]);
                // Bounds that do not bind.
                if (bounds_ != Bounds::none) sure = alpha >= 0.0 ? sure : Vec<double>{};
                if (bounds_ == Bounds::both) sure = norm_.part[j] <= l2.part[j] ? sure : Vec<double>{};
            }
            certain_.part[j] = sure;
            shift_.part[j] = alpha;
            // Measured from alpha as a number of type T (write_line).
            typedef T Narrow __attribute__((vector_size(width<double> * sizeof(T))));
            const Narrow rounded = __builtin_convertvector(alpha, Narrow);
            const Vec<double> origin = __builtin_convertvector(rounded, Vec<double>);
            const Vec<double> rest = (base + ((origin - r) - m) * gain) * norm, slope = gain * norm;
            for (std::size_t i = 0; i < width<double>; ++i) {
                const std::size_t l = j * width<double> + i;
                lines_[l] = {pivot_[l], rounded[i], static_cast<T>(slope[i]), static_cast<T>(rest[i])};
            }
        }
    }

    bool found(std::size_t lane) const { return certain_.get(lane) > 0; }
    const Line<T>& line(std::size_t lane) const { return lines_[lane]; }
    double reads(std::size_t lane) const { return 2 + static_cast<double>(rounds_[lane]); }
    Record record(std::size_t lane) const {
        if (rough_.l1_alone)
            return {shift_.get(lane),
                    1,
                    count_.get(lane),
                    reads(lane),
                    1,
                    rho_.get(lane),
                    norm_.get(lane),
                    static_cast<double>(Active::l1)};
        const double norm = norm_.get(lane), scale = scale_.get(lane) / norm, l1 = rho_.get(lane) * norm;
        return {shift_.get(lane), scale, count_.get(lane), reads(lane), 1, l1, norm, static_cast<double>(Active::both)};
    }
    Support<T> support(std::size_t lane) const {
        Support<T> s;
        if (!found(lane)) return s;
        s.pivot = pivot_[lane];
        s.frame = Frame{reference_.get(lane), 1, 1};
        s.count = count_.get(lane);
        s.below = below_[lane];
        s.above = above_[lane];
        s.mean = mean_.get(lane);
        s.spread = spread_.get(lane);
        return s;
    }

    // The L2 norms of the vectors.
    Wide<T> norms(const T* const (&x)[lanes]) const {
        Vec<double> sums[lanes];
        for (std::size_t l = 0; l < lanes; ++l) {
            Vec<double> sum[parts]{};
            for_each_register<Signed, 1>(x[l], lengths_[l], T(0),
                                         [&]<bool S>(const T* at, std::size_t) __attribute__((always_inline)) {
                                             Vec<double> v[parts];
                                             widen<T>(load(at), v);
                                             for (std::size_t j = 0; j < parts; ++j) sum[j] = fused(v[j], v[j], sum[j]);
                                         });
            sums[l] = sum[0] + (parts > 1 ? sum[parts - 1] : Vec<double>{});
        }
        Wide<T> result = sum_across_all<T>(sums);
        for (std::size_t j = 0; j < parts; ++j) result.part[j] = root(result.part[j]);
        return result;
    }

private:
    static constexpr std::size_t parts = doubles_per<T>;
    static constexpr T infinity = std::numeric_limits<T>::infinity();
    static constexpr std::size_t longest_whole = 512;  // longer vectors are better searched alone than in whole lanes
    // How far below the lower bound entries are kept, in standard deviations: the bound has errors of rounding.
    static constexpr double sifting_margin = 0.01;
    using Mask = decltype(Vec<T>{} > Vec<T>{});

    // Calls body(i, chain) for every entry number, or those from i to end - 1, two chains taking turns.
    template <class Body> static HOYER_INLINE void for_each_row(std::size_t i, std::size_t end, Body&& body) {
        for (; i + 2 <= end; i += 2) {
            body(i, std::size_t{0});
            body(i + 1, std::size_t{1});
        }
        if (i < end) body(i, std::size_t{0});
    }
    template <class Body> HOYER_INLINE void for_each_row(Body&& body) const { for_each_row(0, size_, body); }

    HOYER_INLINE Vec<T> row(std::size_t i) const { return load(entries_.get() + i * lanes); }

    // Puts `size` entries of each vector into the lanes; with Absolute, their magnitudes.
    template <bool Absolute> void put_rows(const T* const (&x)[lanes], std::size_t size) {
        std::size_t i = 0;
        for (; i + lanes <= size; i += lanes) {
            Vec<T> rows[lanes];
            for (std::size_t l = 0; l < lanes; ++l) rows[l] = load_magnitudes<Absolute>(x[l] + i);
            transpose(rows);
            for (std::size_t l = 0; l < lanes; ++l) store(entries_.get() + (i + l) * lanes, rows[l]);
        }
        for (; i < size; ++i)
            for (std::size_t l = 0; l < lanes; ++l) entries_.get()[i * lanes + l] = magnitude<Absolute>(x[l][i]);
        size_ = size;
    }

    // The same for whole vectors, which may differ in length.
    void put_whole(const T* const (&x)[lanes]) {
        if (shortest_ == n_) return put_rows<Signed>(x, n_);
        put_rows<Signed>(x, (n_ + lanes - 1) / lanes * lanes);
        for (std::size_t i = shortest_; i < size_; ++i)
            store(entries_.get() + i * lanes, splat(static_cast<T>(i)) < sizes_ ? row(i) : splat(-infinity));
    }

    // The start for normal entries in standard deviations, looked up once for each length and K.
    T start_of(const ClosedForm& form) {
        Known& known = starts_[static_cast<std::size_t>(form.n)];
        if (known.k != form.k) known = {form.k, static_cast<T>(form.start(1).pivot)};
        return known.start;
    }

    // Mean, variance and ends of what is in the lanes.
    void survey(Address given) {
        const Address ahead = given ? given : address_of(entries_.get());
        const Vec<T> first = row(0);
        SurveyRegisters<T> seen[2] = {{first}, {first}};
        for_each_row(0, shortest_, [&](std::size_t i, std::size_t c) __attribute__((always_inline)) {
            fetch(ahead + i * register_bytes);
            seen[c].see(row(i));
        });
        // What fills a lane up must not be seen.
        for_each_row(shortest_, n_, [&](std::size_t i, std::size_t c) __attribute__((always_inline)) {
            seen[c].see(splat(static_cast<T>(i)) < sizes_ ? row(i) : first);
        });
        seen[0].join(seen[1]);
        judge(seen[0]);
    }

    // The same of vectors where they lie.
    void survey_rows(const T* const (&x)[lanes], Address given) {
        const Address ahead = given ? given : address_of(entries_.get());
        Vec<T> first, sums[lanes], squares[lanes], lows[lanes], highs[lanes];
        for (std::size_t l = 0; l < lanes; ++l) {
            const T reference = magnitude<Signed>(x[l][0]);
            const Address next = ahead + l * n_ * sizeof(T) - address_of(x[l]);
            SurveyRegisters<T> seen[2] = {{splat(reference)}, {splat(reference)}};
            for_each_register<Signed, 2>(x[l], lengths_[l], reference,
                                         [&]<bool S>(const T* at, std::size_t c) __attribute__((always_inline)) {
                                             fetch(next + address_of(at));
                                             seen[c].see(load_magnitudes<S>(at));
                                         });
            seen[0].join(seen[1]);
            first[l] = reference;
            sums[l] = seen[0].sum;
            squares[l] = seen[0].squares;
            lows[l] = seen[0].low;
            highs[l] = seen[0].high;
        }
        judge({first, sum_across_each<T>(sums), sum_across_each<T>(squares),
               across_each<T>(lows, [](auto a, auto b) { return smaller(a, b); }),
               across_each<T>(highs, [](auto a, auto b) { return larger(a, b); })});
    }

    // Which lanes are ordinary, by their sums about their first entries.
    void judge(const SurveyRegisters<T>& seen) {
        const Vec<T> n = sizes_, mean = seen.sum / n, squares = seen.squares / n;
        variance_ = squares - mean * mean;
        middle_ = seen.first + mean;
        low_ = seen.low;
        high_ = seen.high;
        // Where all entries may be the support (maybe_whole) the full search decides.
        const Vec<T> deviation = root(variance_);
        const auto part =
            rough_.whole_step(n, middle_, deviation, n - rough_.k) > low_ + T(RoughRules::whole_margin) * deviation;
        // False for NaN and infinity, too.
        active_ = part & (variance_ > T(RoughRules::digits) * squares) & (variance_ < T(RoughRules::largest_variance)) &
                  (variance_ > T(RoughRules::least_variance));
        done_ = Mask{};
        rounds_ = Vec<T>{};
    }

    // rough_start for all lanes at once.
    Vec<T> start() const {
        const Vec<T> n = sizes_, deviation = root(variance_);
        Vec<T> normal = start_;
        if (rough_.l1_alone) {
            const Vec<T> means = rough_.rho / (n * deviation);
            const MeanTable& table = mean_table();
            for (std::size_t l = 0; l < lanes; ++l) normal[l] = table.pivot(static_cast<float>(means[l]));
        }
        const Vec<T> p = rough_.first_pivot(n, {middle_, deviation, low_, high_}, normal);
        return ((p >= low_) & (p < high_)) ? p : low_;
    }

    // Whether most vectors have so few entries above their start that it pays to sift them.
    bool mostly_small() const {
        const auto few = active_ & (pivot_ >= middle_ + highest_share_ * root(variance_));
        const Vec<T> votes = few ? splat(T(1)) : Vec<T>{};
        return 2 * sum_across<T>(votes) >= T(lanes);
    }

    // Sums the entries above the start, and puts those above the lower bound that follows into the lanes. In place of
    // all others each lane gets at least one entry as large as the bound.
    void sift(const T* const (&x)[lanes], Address written_next) {
        const Vec<T> lowest = low_;
        step(sums_of_rows(x, pivot_, written_next));
        // No bound follows where fewer entries than K are above; from there Newton's step goes down.
        for (int more = 0; more < 2 && any(active_ & (low_ <= lowest)); ++more) step(sums_of_rows(x, pivot_, 0));
        const Vec<T> bound = low_ - T(sifting_margin) * root(variance_);
        std::size_t counts[lanes], most = 0;
        T* places[lanes];
        for (std::size_t l = 0; l < lanes; ++l) {
            places[l] = sifted_.get() + l * sifted_length();
            counts[l] = active_[l] ? above(x[l], lengths_[l], bound[l], places[l]) : 0;
            most = std::max(most, counts[l]);
        }
        const std::size_t size = (most + lanes) / lanes * lanes;
        for (std::size_t l = 0; l < lanes; ++l) std::fill(places[l] + counts[l], places[l] + size, bound[l]);
        const T* rows[lanes];
        std::copy_n(places, lanes, rows);
        put_rows<false>(rows, size);
        low_ = bound;
        active_ &= pivot_ >= bound;
        rounds_ += T(1);
    }

    // The entries above a bound, one after the other; returns how many.
    static std::size_t above(const T* x, std::size_t n, T bound, T* to) {
        const Vec<T> low = splat(bound);
        std::size_t count = 0;
        for_each_register<Signed, 1>(x, n, bound, [&]<bool S>(const T* at, std::size_t) __attribute__((always_inline)) {
            count += append_above(load_magnitudes<S>(at), low, to + count);
        });
        return count;
    }

    // The sums above a pivot of vectors where they lie; what is next to the pivot is not looked for.
    RoughSums<T> sums_of_rows(const T* const (&x)[lanes], Vec<T> pivot, Address given) const {
        const Address ahead = given ? given : address_of(entries_.get());
        Vec<T> sums[lanes], squares[lanes], counts[lanes];
        for (std::size_t l = 0; l < lanes; ++l) {
            const Vec<T> p = splat(pivot[l]), none{};
            const Address next = ahead + l * n_ * sizeof(T) - address_of(x[l]);
            Vec<T> sum[2]{}, square[2]{};
            Vec<CountOf<T>> inside[2]{};
            for_each_register<Signed, 2>(x[l], lengths_[l], pivot[l],
                                         [&]<bool S>(const T* at, std::size_t c) __attribute__((always_inline)) {
                                             fetch(next + address_of(at));
                                             const Vec<T> t = larger(load_magnitudes<S>(at) - p, none);
                                             sum[c] += t;
                                             square[c] = fused(t, t, square[c]);
                                             inside[c] -= t > none;
                                         });
            sums[l] = sum[0] + sum[1];
            squares[l] = square[0] + square[1];
            counts[l] = __builtin_convertvector(inside[0] + inside[1], Vec<T>);
        }
        RoughSums<T> s;
        s.sum = sum_across_each<T>(sums);
        s.squares = sum_across_each<T>(squares);
        s.inside = __builtin_convertvector(sum_across_each<T>(counts), Vec<CountOf<T>>);
        s.below = pivot;
        s.above = splat(-infinity);
        return s;
    }

    // Goes on from the pivot by the sums above it: the steps of rough_search.
    HOYER_INLINE void step(const RoughSums<T>& s) {
        const Vec<T> none{}, one = splat(T(1)), p = pivot_;
        rounds_ += active_ ? one : none;
        const Vec<T> count = s.count(), mean = s.sum / count;
        const Fit<Vec<T>> fit = rough_.fit(count, p + mean, s.squares - mean * s.sum, count - rough_.k);
        const Vec<T> newton = p + rough_.newton(count, s.sum, s.squares), alpha = fit.step;
        const auto enough = fit.excess > none;
        const auto here = active_ & enough & (s.below <= alpha) & (alpha < s.above);
        done_ |= here;
        active_ &= ~here;
        const auto up = enough & (alpha > p);
        low_ = enough ? larger(low_, alpha) : low_;
        high_ = up ? high_ : smaller(high_, s.below);
        const Vec<T> just_below = high_ - T(1.5) * std::numeric_limits<T>::epsilon() * magnitudes<true, T>(high_);
        Vec<T> next = ((newton < high_) | ~enough) ? newton : just_below;
        const auto ahead_of_alpha = (newton > alpha) & (newton < high_);
        const Vec<T> onward = ahead_of_alpha ? alpha + T(RoughRules::newton_weight) * (newton - alpha) : alpha;
        next = up ? onward : next;
        next = ((next >= low_) & (next < high_)) ? next : T(0.5) * (low_ + high_);
        active_ &= (next >= low_) & (next < high_) & (next != p);
        pivot_ = active_ ? next : p;
    }

    // Finds a pivot with no entry between itself and alpha (rough_search for all lanes at once).
    void search(Address ahead) {
        RoughSums<T> s;
        for (int round = 0; round < 10; ++round) {
            const Vec<T> p = pivot_;
            RoughSums<T> sums[2];
            const auto see = [&](std::size_t i, std::size_t c)
                                 __attribute__((always_inline)) { sums[c].see(row(i), p); };
            if (round == 0 && ahead) {
                for_each_row([&](std::size_t i, std::size_t c) __attribute__((always_inline)) {
                    fetch(ahead + i * register_bytes);
                    see(i, c);
                });
            } else {
                for_each_row(see);
            }
            s = sums[0];
            s.join(sums[1]);
            centre_ = p + s.sum / s.count();
            step(s);
            if (!any(active_)) break;
        }
        below_ = s.below;
        above_ = s.above;
        inside_ = s.count();
    }

    static HOYER_INLINE bool any(Mask mask) {
        const Vec<T> ones = mask ? splat(T(1)) : Vec<T>{};
        return largest_across<T>(ones) > 0;
    }

    // The support above the pivot in double, and whether it is certain: Search::certain for all lanes at once.
    void confirm() {
        Wide<T> r, sums[2]{}, squares[2]{}, under, over, done;
        widen<T>(centre_, r.part);
        widen<T>(inside_, count_.part);
        widen<T>(below_, under.part);
        widen<T>(above_, over.part);
        widen<T>(done_ ? splat(T(1)) : Vec<T>{}, done.part);
        for_each_row([&](std::size_t i, std::size_t c) __attribute__((always_inline)) {
            add_above(row(i), pivot_, r.part, sums[c].part, squares[c].part);
        });
        for (std::size_t j = 0; j < parts; ++j) {
            const Vec<double> s1 = sums[0].part[j] + sums[1].part[j], s2 = squares[0].part[j] + squares[1].part[j];
            const Vec<double> none{}, n = wide_sizes_.part[j], c = count_.part[j], m = s1 / c;
            const Vec<double> rest = larger(s2 - m * s1, none);
            // K counts as 0 where l1 alone is given, whatever the length.
            const Vec<double> excess =
                rough_.l1_alone ? c : ClosedForm::excess(c, n, slack_.part[j], slack_low_.part[j]);
            const NormRatio<Vec<double>> form{rho_.part[j], none, rough_.l1_alone};
            const Fit<Vec<double>> fit = form.fit(c, m, rest, excess);
            const Vec<double> size = fit.scale, base = fit.base, share = 1 / size;
            // In units of the norm: what the neighbours of the pivot would get. Certain means: by a margin.
            const Vec<double> smallest = base + (over.part[j] - r.part[j] - m) * share;
            const Vec<double> largest = base + (under.part[j] - r.part[j] - m) * share, margin = base * 0x1p-45;
            const auto good = (excess > none) & (c * m * m <= form.own_squares(c, rest, fit)) & (smallest > margin) &
                              (largest < -margin) & (c < n);
            certain_.part[j] = good ? done.part[j] : none;
            mean_.part[j] = m;
            spread_.part[j] = rest;
            scale_.part[j] = size;
        }
        reference_ = r;
    }

    struct Free {
        void operator()(T* memory) const { ::operator delete(memory, std::align_val_t{register_bytes}); }
    };
    static T* allocate(std::size_t entries) {
        return static_cast<T*>(::operator new(entries * sizeof(T), std::align_val_t{register_bytes}));
    }
    // Entries of a sifted vector, what fills it up, and what an appended register may touch.
    std::size_t sifted_length() const { return capacity_ + lanes + append_margin; }

    struct Known {
        double k = -1;
        T start{};
    };

    std::size_t capacity_, n_ = 0, shortest_ = 0;  // the length that there is room for; the longest and the shortest
    std::size_t size_ = 0;                         // of what is in the lanes
    std::size_t lengths_[lanes]{};
    Vec<T> sizes_{};  // the same as numbers
    Wide<T> wide_sizes_;
    SamplingRules rules_;
    bool sifts_ = false;
    double largest_share_ = 0;  // of K in a length
    std::unique_ptr<T, Free> entries_, sifted_;
    std::vector<Known> starts_;
    NormRatio<Vec<T>> rough_;  // the closed forms
    Bounds bounds_ = Bounds::none;
    T highest_share_{};  // in standard deviations: above a start from here on few entries are expected
    Vec<T> start_{};
    Wide<T> rho_, slack_, slack_low_;
    Vec<T> middle_, variance_, low_, high_;                    // the survey
    Vec<T> pivot_, below_, above_, inside_, centre_, rounds_;  // the rough search
    Mask active_, done_;
    Wide<T> reference_, count_, mean_, spread_, scale_, certain_;  // the supports
    Wide<T> norm_, shift_;                                         // the results
    Line<T> lines_[lanes];
};

}  // namespace hoyer::inline HOYER_ISA
