// Short vectors: as many as a register has entries, side by side, one vector per lane.
//
// All lanes take the same steps together: survey, start, evaluations in the arithmetic of the data, and one confirming
// evaluation in double. What is ordinary is decided here; ends of the range, ties, whole supports, NaN, doubt and slow
// searches are left to the full search, one vector at a time.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <memory>

#include "jobs.hpp"
#include "project.hpp"
#include "rough.hpp"
#include "search.hpp"
#include "simd.hpp"
#include "start.hpp"
#include "target.hpp"
#include "vector.hpp"

namespace hoyer::inline HOYER_ISA {

// A double for each entry of a register of T.
template <class T> struct Wide {
    Vec<double> part[doubles_per<T>];
    double get(std::size_t lane) const { return part[lane / width<double>][lane % width<double>]; }
    void set(std::size_t lane, double value) { part[lane / width<double>][lane % width<double>] = value; }
};

template <class V> HOYER_INLINE V root(V value) {
    V result;
    for (std::size_t i = 0; i < sizeof(V) / sizeof(value[0]); ++i) result[i] = std::sqrt(value[i]);
    return result;
}

// Sums run through the vector one entry after the other: harmless for float in double, and for a few doubles.
template <class T> constexpr std::size_t longest_lane = sizeof(T) == 4 ? 256 : 48;

template <bool Signed, class T> class LaneGroup {
public:
    static constexpr std::size_t lanes = width<T>;

    explicit LaneGroup(std::size_t n)
        : n_(n), entries_(static_cast<T*>(::operator new(n* register_bytes, std::align_val_t{register_bytes}))) {}

    // Vectors one after the other in memory, each contiguous.
    void put_rows(const T* const (&x)[lanes]) {
        std::size_t i = 0;
        for (; i + lanes <= n_; i += lanes) {
            Vec<T> rows[lanes];
            for (std::size_t l = 0; l < lanes; ++l) rows[l] = load_magnitudes<Signed>(x[l] + i);
            transpose(rows);
            for (std::size_t l = 0; l < lanes; ++l) store(entries_.get() + (i + l) * lanes, rows[l]);
        }
        for (; i < n_; ++i)
            for (std::size_t l = 0; l < lanes; ++l) entries_.get()[i * lanes + l] = magnitude<Signed>(x[l][i]);
    }

    // What is asked of the lanes; it holds until it is set again.
    void aim(const Target (&targets)[lanes]) {
        for (std::size_t l = 0; l < lanes; ++l) {
            const Target& target = targets[l];
            // Most batches have one target for all.
            const bool same = l > 0 && target.k == targets[l - 1].k;
            rough_rho_[l] = static_cast<T>(target.rho);
            rough_k_[l] = static_cast<T>(target.k);
            start_[l] = same ? start_[l - 1] : static_cast<T>(normal_start(target.k / target.n).pivot);
            rho_.set(l, target.rho);
            room_.set(l, target.room.hi);
            room_low_.set(l, target.room.lo);
        }
    }

    // Finds the supports. Meanwhile a group's worth of memory comes to the caches from each of two places (or 0): what
    // is read next, and what is written next.
    void solve(Address read_next, Address written_next) {
        survey(read_next);
        search(written_next);
        confirm();
    }

    // Forms what makes the results from the entries; `found` is then false where that is out of the ordinary as well.
    void finish(NormRule rule, const Wide<T>& l2) {
        if (rule == NormRule::keep) rounds_ += T(1);  // the norms are a read, too
        for (std::size_t j = 0; j < parts; ++j) {
            const Vec<double> m = mean_.part[j], size = scale_.part[j], r = reference_.part[j], rho = rho_.part[j];
            const Vec<double> base = rho / count_.part[j], gain = 1 / size, alpha = r + (m - size * base);
            norm_.part[j] = rule == NormRule::nearest ? rho * (r + m) + spread_.part[j] * gain : l2.part[j];
            const Vec<double> norm = norm_.part[j], data_scale = size / norm;
            const auto good = (norm > 1e-30) & (norm < 1e30) & (data_scale > 1e-30) & (data_scale < 1e30) &
                              (alpha > -1e30) & (alpha < 1e30);
            const Vec<double> sure = good ? certain_.part[j] : Vec<double>{};
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
        const double norm = norm_.get(lane);
        return {shift_.get(lane),
                scale_.get(lane) / norm,
                count_.get(lane),
                reads(lane),
                1,
                rho_.get(lane) * norm,
                norm,
                static_cast<double>(Kept::no)};
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
    Wide<T> norms() const {
        Wide<T> sum{};
        for (std::size_t i = 0; i < n_; ++i) {
            Vec<double> v[parts];
            widen<T>(row(i), v);
            for (std::size_t j = 0; j < parts; ++j) sum.part[j] += v[j] * v[j];
        }
        for (std::size_t j = 0; j < parts; ++j) sum.part[j] = root(sum.part[j]);
        return sum;
    }

private:
    static constexpr std::size_t parts = doubles_per<T>;
    static constexpr T infinity = std::numeric_limits<T>::infinity();
    using Mask = decltype(Vec<T>{} > Vec<T>{});

    // Calls body(i, chain) for every entry number, two chains taking turns.
    template <class Body> HOYER_INLINE void for_each_row(Body&& body) const {
        std::size_t i = 0;
        for (; i + 2 <= n_; i += 2) {
            body(i, std::size_t{0});
            body(i + 1, std::size_t{1});
        }
        if (i < n_) body(i, std::size_t{0});
    }

    HOYER_INLINE Vec<T> row(std::size_t i) const { return load(entries_.get() + i * lanes); }

    // Mean, variance and ends, and which lanes are ordinary.
    void survey(Address given) {
        const Address ahead = given ? given : address_of(entries_.get());
        const Vec<T> first = row(0);
        Vec<T> sums[2]{}, products[2]{}, lows[2] = {first, first}, highs[2] = {first, first};
        for_each_row([&](std::size_t i, std::size_t c) __attribute__((always_inline)) {
            fetch(ahead + i * register_bytes);
            const Vec<T> v = row(i), t = v - first;
            sums[c] += t;
            products[c] = fused(t, t, products[c]);
            highs[c] = larger(v, highs[c]);
            lows[c] = smaller(v, lows[c]);
        });
        const Vec<T> sum = sums[0] + sums[1], low = smaller(lows[0], lows[1]), high = larger(highs[0], highs[1]);
        Vec<T> squares = products[0] + products[1];
        const Vec<T> n = splat(static_cast<T>(n_)), mean = sum / n;
        squares /= n;
        variance_ = squares - mean * mean;
        middle_ = first + mean;
        low_ = low;
        high_ = high;
        // Where all entries may be the support (maybe_whole) the full search decides.
        const Vec<T> deviation = root(variance_), rest = n - rough_k_;
        const auto part =
            middle_ - deviation * root(n / rest) * rough_rho_ / root(n) > low + T(RoughRules::whole_margin) * deviation;
        // False for NaN and infinity, too.
        active_ = part & (variance_ > T(RoughRules::digits) * squares) & (variance_ < T(RoughRules::largest_variance)) &
                  (variance_ > T(RoughRules::least_variance));
    }

    // Finds a pivot with no entry between itself and alpha (rough_search for all lanes at once).
    void search(Address ahead) {
        const Vec<T> none{}, one = splat(T(1)), rho = rough_rho_, k = rough_k_;
        const Vec<T> share = T(RoughRules::uniform_tail) * k / static_cast<T>(n_);
        Vec<T> low = low_, high = high_;
        const Vec<T> uniform = high - (high - middle_) * smaller(share, one);
        Vec<T> p = smaller(middle_ + start_ * root(variance_), uniform);
        p = (p >= low) & (p < high) ? p : low;
        Mask active = active_, done{};
        Vec<T> rounds{};
        RoughSums<T> s;
        for (int round = 0; round < 10; ++round) {
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
            rounds += active ? one : none;
            const Vec<T> count = s.count(), mean = s.sum / count, ratio = s.sum * s.sum / s.squares, excess = count - k;
            const Vec<T> newton = p + (ratio - k) * s.squares / (T(2) * s.sum * (count - ratio));
            const auto enough = excess > none;
            const Vec<T> alpha = p + mean - root((s.squares - mean * s.sum) * count / excess) * rho / count;
            const auto here = active & enough & (s.below <= alpha) & (alpha < s.above);
            done |= here;
            active &= ~here;
            // The steps of rough_search.
            const auto up = enough & (alpha > p);
            low = enough ? larger(low, alpha) : low;
            high = up ? high : smaller(high, s.below);
            const Vec<T> just_below = high - T(1.5) * std::numeric_limits<T>::epsilon() * magnitudes<true, T>(high);
            Vec<T> next = (newton < high) | ~enough ? newton : just_below;
            const auto ahead_of_alpha = (newton > alpha) & (newton < high);
            const Vec<T> onward = ahead_of_alpha ? alpha + T(RoughRules::newton_weight) * (newton - alpha) : alpha;
            next = up ? onward : next;
            next = (next >= low) & (next < high) ? next : T(0.5) * (low + high);
            active &= (next >= low) & (next < high) & (next != p);
            p = active ? next : p;
            if (!any(active)) break;
        }
        done_ = done;
        pivot_ = p;
        below_ = s.below;
        above_ = s.above;
        inside_ = s.count();
        centre_ = p + s.sum / inside_;
        rounds_ = rounds;
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
        const double n = static_cast<double>(n_);
        for (std::size_t j = 0; j < parts; ++j) {
            const Vec<double> s1 = sums[0].part[j] + sums[1].part[j], s2 = squares[0].part[j] + squares[1].part[j];
            const Vec<double> none{}, c = count_.part[j], m = s1 / c;
            const Vec<double> rest = larger(s2 - m * s1, none);
            const Vec<double> excess = ((c - n) + room_.part[j]) + room_low_.part[j];
            const Vec<double> size = root(rest * c / excess), base = rho_.part[j] / c, share = 1 / size;
            // In units of the norm: what the neighbours of the pivot would get. Certain means: by a margin.
            const Vec<double> smallest = base + (over.part[j] - r.part[j] - m) * share;
            const Vec<double> largest = base + (under.part[j] - r.part[j] - m) * share, margin = base * 0x1p-45;
            const auto good =
                (excess > none) & (c * m * m <= rest) & (smallest > margin) & (largest < -margin) & (c < n);
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
    std::size_t n_;
    std::unique_ptr<T, Free> entries_;
    Vec<T> rough_rho_, rough_k_, start_;  // the targets
    Wide<T> rho_, room_, room_low_;
    Vec<T> middle_, variance_, low_, high_;                    // the survey
    Vec<T> pivot_, below_, above_, inside_, centre_, rounds_;  // the rough search
    Mask active_, done_;
    Wide<T> reference_, count_, mean_, spread_, scale_, certain_;  // the supports
    Wide<T> norm_, shift_;                                         // the results
    Line<T> lines_[lanes];
};

}  // namespace hoyer::inline HOYER_ISA
