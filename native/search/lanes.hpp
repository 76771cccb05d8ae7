// Short vectors: as many as a register has entries, side by side, one vector per lane.
//
// With masks they have holes, or differ in length if they are packed: -infinity, which is above no pivot, is there
// instead. All lanes take the same steps together: survey, start, evaluations in the arithmetic of the data, and one
// confirming evaluation in double. What is ordinary is decided here; ends of the range, ties, whole supports, NaN,
// doubt and slow searches are left to the full search, one vector at a time.
//
// Of longer vectors most entries are small: only what is above a lower bound gets a place in the lanes. Where l1 alone
// is given the bound follows from the largest entries, which one reading finds, past a mask if there is one; otherwise
// vectors, packed, are surveyed and summed once where they lie.
#pragma once

#include "search/rough.hpp"
#include "simd/masks.hpp"
#include "write.hpp"

namespace hoyer::inline HOYER_ISA {

// Sums run through the vector one entry after the other: harmless for float in double, and for a few doubles.
template <class T> constexpr std::size_t longest_lane = sizeof(T) == 4 ? 2048 : 48;

// A vector of a group; with a mask it need not be packed, and `x` is not asked for.
template <class T> struct LaneRow {
    const T* x;
    MaskedVector<T>* masked = nullptr;

    // The first entry that counts; there must be one.
    T first() const { return masked ? masked->x[first_of(masked->mask)] : x[0]; }
};

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
        // Through memory: to set one entry of a register after the other takes longer.
        T rho[lanes], k[lanes], start[lanes]{};
        double wide_rho[lanes], slack[lanes], slack_low[lanes];
        for (std::size_t l = 0; l < lanes; ++l) {
            const ClosedForm& form = forms[l];
            largest_share_ = std::max(largest_share_, form.k / form.n);
            rho[l] = static_cast<T>(form.rho);
            k[l] = static_cast<T>(form.k);
            if (!form.l1_alone) start[l] = start_of(form);
            wide_rho[l] = form.rho;
            slack[l] = form.slack.hi;
            slack_low[l] = form.slack.lo;
        }
        rough_.rho = load(rho);
        rough_.k = load(k);
        start_ = load(start);
        rho_ = Wide<T>::from(wide_rho);
        slack_ = Wide<T>::from(slack);
        slack_low_ = Wide<T>::from(slack_low);
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
        wide_sizes_ = Wide<T>::from(wide);
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
    bool solve(const LaneRow<T> (&given)[lanes], const Ahead& ahead) {
        LaneRow<T> rows[lanes];
        std::copy_n(given, lanes, rows);
        places_ = rows[0].masked ? rows[0].masked->places : n_;
        // Where masks leave little, what they leave is better read alone.
        if (rows[0].masked && (places_ > 2 * n_ || places_ > capacity_))
            for (LaneRow<T>& row : rows) row = {row.masked->pack()};
        if (sifts_ && rough_.l1_alone && tops_pay_) {
            tops_pay_ = see_tops(rows, ahead.read);
            if (tops_pay_) {
                sift(rows, low_, ahead.written);
                search(0);
                confirm();
                return true;
            }
        }
        if (sifts_) {
            survey_rows(rows, ahead.read);
        } else {
            put_whole(rows);
            survey(ahead.read);
        }
        pivot_ = start();
        const bool few = sifts_ && (!rough_.l1_alone || mostly_small());
        if (sifts_ && !few && n_ > longest_whole) return false;
        if (few)
            sift_by_sums(rows, ahead.written);
        else if (sifts_)
            put_whole(rows);
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
                sure = ((rho > 1e-30) & (rho < 1e30)) ? sure : Vec<double>{};
                norm_.part[j] = root(rho * base + spread_.part[j]);
                // Bounds that do not bind.
                if (bounds_ != Bounds::none) sure = alpha >= 0.0 ? sure : Vec<double>{};
                if (bounds_ == Bounds::both) sure = norm_.part[j] <= l2.part[j] ? sure : Vec<double>{};
            } else if (bounds_ == Bounds::both) {
                // Both bind if their multipliers are not negative.
                sure = ((alpha >= 0.0) & (data_scale >= 1.0)) ? sure : Vec<double>{};
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
    Wide<T> norms(const LaneRow<T> (&rows)[lanes]) const {
        Vec<double> sums[lanes];
        for (std::size_t l = 0; l < lanes; ++l) {
            Vec<double> sum[parts]{};
            visit<1>(rows[l], lengths_[l], T(0),
                     [&](Vec<T> v, std::size_t, std::size_t) __attribute__((always_inline)) {
                         Vec<double> wide[parts];
                         widen<T>(v, wide);
                         for (std::size_t j = 0; j < parts; ++j) sum[j] = fused(wide[j], wide[j], sum[j]);
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
    using Choice = decltype(Vec<T>{} > Vec<T>{});  // of lanes

    // for_each_magnitudes of a vector with or without a mask.
    template <std::size_t Chains, class Body>
    static HOYER_INLINE void visit(const LaneRow<T>& row, std::size_t n, T rest, Body&& body) {
        if (const MaskedVector<T>* masked = row.masked)
            for_each_magnitudes<Signed, Chains, true>(masked->x, masked->mask, masked->places, rest, body);
        else
            for_each_magnitudes<Signed, Chains, false>(row.x, nullptr, n, rest, body);
    }
    // Brings the mask of a vector of the next group to the caches, if it is where one would think.
    static HOYER_INLINE void fetch_mask(const LaneRow<T>& row) {
        if (!row.masked) return;
        const std::size_t bytes = row.masked->places;
        const Address next = address_of(row.masked->mask) + lanes * bytes;
        for (std::size_t i = 0; i < bytes; i += line_bytes) fetch(next + i);
    }

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

    // Puts `size` entries of each vector into the lanes; with Absolute, their magnitudes, and with Masked, -infinity
    // for those that do not count.
    template <bool Absolute, bool Masked = false> void put_rows(const LaneRow<T> (&given)[lanes], std::size_t size) {
        const T* x[lanes];
        Mask masks[lanes]{};
        for (std::size_t l = 0; l < lanes; ++l) {
            x[l] = Masked ? given[l].masked->x : given[l].x;
            if constexpr (Masked) masks[l] = given[l].masked->mask;
        }
        const Vec<T> none = splat(-infinity);
        std::size_t i = 0;
        for (; i + lanes <= size; i += lanes) {
            Vec<T> rows[lanes];
            for (std::size_t l = 0; l < lanes; ++l) {
                rows[l] = load_magnitudes<Absolute>(x[l] + i);
                if constexpr (Masked) rows[l] = kept(rows[l], masks[l] + i, none);
            }
            transpose(rows);
            for (std::size_t l = 0; l < lanes; ++l) store(entries_.get() + (i + l) * lanes, rows[l]);
        }
        for (; i < size; ++i)
            for (std::size_t l = 0; l < lanes; ++l)
                entries_.get()[i * lanes + l] = !Masked || masks[l][i] ? magnitude<Absolute>(x[l][i]) : -infinity;
        size_ = size;
    }

    // The same for whole vectors. Up to `full_` all lanes have entries.
    void put_whole(const LaneRow<T> (&rows)[lanes]) {
        full_ = shortest_;
        if (rows[0].masked) {
            for (const LaneRow<T>& row : rows) fetch_mask(row);
            put_rows<Signed, true>(rows, places_);
            full_ = 0;
        } else if (shortest_ == n_) {
            put_rows<Signed>(rows, n_);
        } else {
            put_rows<Signed>(rows, (n_ + lanes - 1) / lanes * lanes);
            for (std::size_t i = shortest_; i < size_; ++i)
                store(entries_.get() + i * lanes, splat(static_cast<T>(i)) < sizes_ ? row(i) : splat(-infinity));
        }
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
        const Vec<T> empty = splat(-infinity), one = splat(T(1)), none{};
        Vec<T> first = row(0);
        for (std::size_t i = 1; full_ == 0 && i < size_ && any(first == empty); ++i)
            first = first == empty ? row(i) : first;
        SurveyRegisters<T> seen[2] = {{first}, {first}};
        for_each_row(0, full_, [&](std::size_t i, std::size_t c) __attribute__((always_inline)) {
            fetch(ahead + i * register_bytes);
            seen[c].see(row(i));
        });
        // What fills a lane up must not be seen; entries that look like it are missed.
        Vec<T> counts[2]{};
        for_each_row(full_, size_, [&](std::size_t i, std::size_t c) __attribute__((always_inline)) {
            fetch(ahead + i * register_bytes);
            const auto in = row(i) != empty;
            seen[c].see(in ? row(i) : first);
            counts[c] += in ? one : none;
        });
        seen[0].join(seen[1]);
        judge(seen[0]);
        active_ &= counts[0] + counts[1] == sizes_ - static_cast<T>(full_);
    }

    // The same of vectors where they lie.
    void survey_rows(const LaneRow<T> (&rows)[lanes], Address given) {
        const Address ahead = given ? given : address_of(entries_.get());
        T first[lanes];
        Vec<T> sums[lanes], squares[lanes], lows[lanes], highs[lanes];
        for (std::size_t l = 0; l < lanes; ++l) {
            fetch_mask(rows[l]);
            const T reference = first[l] = lengths_[l] > 0 ? magnitude<Signed>(rows[l].first()) : T(0);
            const Address next = ahead + l * places_ * sizeof(T);
            SurveyRegisters<T> seen[2] = {{splat(reference)}, {splat(reference)}};
            visit<2>(rows[l], lengths_[l], reference,
                     [&](Vec<T> v, std::size_t c, std::size_t i) __attribute__((always_inline)) {
                         fetch(next + i * sizeof(T));
                         seen[c].see(v);
                     });
            seen[0].join(seen[1]);
            sums[l] = seen[0].sum;
            squares[l] = seen[0].squares;
            lows[l] = seen[0].low;
            highs[l] = seen[0].high;
        }
        judge({load(first), sum_across_each<T>(sums), sum_across_each<T>(squares),
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
        done_ = Choice{};
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
    bool mostly_small() const { return mostly(active_ & (pivot_ >= middle_ + highest_share_ * root(variance_))); }
    static bool mostly(Choice some) {
        const Vec<T> votes = some ? splat(T(1)) : Vec<T>{};
        return 2 * sum_across<T>(votes) >= T(lanes);
    }

    // Finds the largest entries of vectors where they lie, and a lower bound from them (Sampled::bracket_by for all
    // lanes at once); false if most vectors seem to have too many entries above it to sift them.
    bool see_tops(const LaneRow<T> (&rows)[lanes], Address given) {
        constexpr std::size_t chains = 2, size = chains * lanes;
        const Address ahead = given ? given : address_of(entries_.get());
        T tops[lanes][size];
        LaneRow<T> found[lanes];
        Vec<T> sound[lanes];
        for (std::size_t l = 0; l < lanes; ++l) {
            fetch_mask(rows[l]);
            const Address next = ahead + l * places_ * sizeof(T);
            // What a mask leaves out is no infinity.
            const T lowest = std::numeric_limits<T>::lowest();
            Vec<T> highest[chains], zero[chains]{};
            std::fill_n(highest, chains, splat(lowest));
            visit<chains>(rows[l], lengths_[l], lowest,
                          [&](Vec<T> v, std::size_t c, std::size_t i) __attribute__((always_inline)) {
                              fetch(next + i * sizeof(T));
                              highest[c] = larger(v, highest[c]);
                              zero[c] = fused(v, Vec<T>{}, zero[c]);
                          });
            for (std::size_t c = 0; c < chains; ++c) store(tops[l] + c * lanes, highest[c]);
            sound[l] = zero[0] + zero[1];
            found[l].x = tops[l];
        }
        put_rows<false>(found, size);
        const Vec<T> none{}, one = splat(T(1));
        high_ = row(0);
        for (std::size_t i = 1; i < size; ++i) high_ = larger(high_, row(i));
        // Every bound is better than the one before. No entry gets more than l1.
        Vec<T> bound = high_ - rough_.rho, above = none;
        for (int round = 0; round < 4; ++round) {
            Vec<T> sum[2]{}, count[2]{};
            for_each_row([&](std::size_t i, std::size_t c) __attribute__((always_inline)) {
                const Vec<T> t = row(i) - bound;
                sum[c] += larger(t, none);
                count[c] += t > none ? one : none;
            });
            above = count[0] + count[1];
            bound += (sum[0] + sum[1] - rough_.rho) / above;
        }
        pivot_ = bound;
        // Rounding may have raised it.
        const T margin = 16 * std::numeric_limits<T>::epsilon();
        low_ = bound - margin * larger(magnitudes<true, T>(high_), rough_.rho);
        // False for NaN and infinity, too.
        active_ = (sum_across_each<T>(sound) == none) & (low_ < high_) & (pivot_ >= low_);
        done_ = Choice{};
        rounds_ = none;
        const auto few = active_ & (above <= T(0.75) * T(size));
        return mostly(few);
    }

    // Sums the entries above the start, and puts those above the lower bound that follows into the lanes.
    void sift_by_sums(const LaneRow<T> (&rows)[lanes], Address written_next) {
        const Vec<T> lowest = low_;
        step(sums_of_rows(rows, pivot_, written_next));
        // No bound follows where fewer entries than K are above; from there Newton's step goes down.
        for (int more = 0; more < 2 && any(active_ & (low_ <= lowest)); ++more) step(sums_of_rows(rows, pivot_, 0));
        sift(rows, low_ - T(sifting_margin) * root(variance_), 0);
    }

    // Puts the entries above a lower bound into the lanes. In place of all others each lane gets at least one entry as
    // large as the bound.
    void sift(const LaneRow<T> (&rows)[lanes], Vec<T> bound, Address written_next) {
        std::size_t counts[lanes], most = 0;
        T* sifted[lanes];
        for (std::size_t l = 0; l < lanes; ++l) {
            sifted[l] = sifted_.get() + l * sifted_length();
            const Address ahead = written_next + l * places_ * sizeof(T);
            counts[l] = !active_[l]    ? 0
                        : written_next ? above<true>(rows[l], lengths_[l], bound[l], sifted[l], ahead)
                                       : above<false>(rows[l], lengths_[l], bound[l], sifted[l], 0);
            most = std::max(most, counts[l]);
        }
        const std::size_t size = (most + lanes) / lanes * lanes;
        LaneRow<T> filled[lanes];
        for (std::size_t l = 0; l < lanes; ++l) {
            std::fill(sifted[l] + counts[l], sifted[l] + size, bound[l]);
            filled[l].x = sifted[l];
        }
        put_rows<false>(filled, size);
        low_ = bound;
        active_ &= pivot_ >= bound;
        rounds_ += T(1);
    }

    // The entries above a bound, one after the other; returns how many. With Fetch, as much memory as the vector has
    // comes to the caches meanwhile.
    template <bool Fetch>
    static std::size_t above(const LaneRow<T>& row, std::size_t n, T bound, T* to, [[maybe_unused]] Address ahead) {
        const Vec<T> low = splat(bound);
        std::size_t count = 0;
        visit<1>(row, n, bound,
                 [&](Vec<T> v, std::size_t, [[maybe_unused]] std::size_t i) __attribute__((always_inline)) {
                     if constexpr (Fetch) fetch(ahead + i * sizeof(T));
                     count += append_above(v, low, to + count);
                 });
        return count;
    }

    // The sums above a pivot of vectors where they lie; what is next to the pivot is not looked for.
    RoughSums<T> sums_of_rows(const LaneRow<T> (&rows)[lanes], Vec<T> pivot, Address given) const {
        const Address ahead = given ? given : address_of(entries_.get());
        Vec<T> sums[lanes], squares[lanes], counts[lanes];
        for (std::size_t l = 0; l < lanes; ++l) {
            const Vec<T> p = splat(pivot[l]), none{};
            const Address next = ahead + l * places_ * sizeof(T);
            Vec<T> sum[2]{}, square[2]{};
            Vec<CountOf<T>> inside[2]{};
            visit<2>(rows[l], lengths_[l], pivot[l],
                     [&](Vec<T> v, std::size_t c, std::size_t i) __attribute__((always_inline)) {
                         fetch(next + i * sizeof(T));
                         const Vec<T> t = larger(v - p, none);
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

    static HOYER_INLINE bool any(Choice some) {
        const Vec<T> ones = some ? splat(T(1)) : Vec<T>{};
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
    std::size_t places_ = 0;                       // from the start of a vector to that of the next one
    std::size_t size_ = 0, full_ = 0;              // of what is in the lanes
    std::size_t lengths_[lanes]{};
    Vec<T> sizes_{};  // the same as numbers
    Wide<T> wide_sizes_;
    SamplingRules rules_;
    bool sifts_ = false, tops_pay_ = true;
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
    Choice active_, done_;
    Wide<T> reference_, count_, mean_, spread_, scale_, certain_;  // the supports
    Wide<T> norm_, shift_;                                         // the results
    Line<T> lines_[lanes];
};

}  // namespace hoyer::inline HOYER_ISA
