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
#include "search.hpp"
#include "simd.hpp"
#include "start.hpp"
#include "target.hpp"
#include "vector.hpp"

namespace hoyer::inline HOYER_ISA {

// Registers with consecutive entries of one vector each become registers with one entry of all vectors each.
#if defined(__AVX512F__)

// Within quarters of a register first, whole quarters afterwards.
HOYER_INLINE void transpose(Vec<double> (&rows)[8]) {
    Vec<double> pairs[8];
#pragma GCC unroll 8
    for (std::size_t i = 0; i < 8; i += 2) {
        pairs[i] = _mm512_unpacklo_pd(rows[i], rows[i + 1]);
        pairs[i + 1] = _mm512_unpackhi_pd(rows[i], rows[i + 1]);
    }
#pragma GCC unroll 2
    for (std::size_t k = 0; k < 2; ++k) {
        const Vec<double> a = _mm512_shuffle_f64x2(pairs[k], pairs[2 + k], 0x88),
                          b = _mm512_shuffle_f64x2(pairs[k], pairs[2 + k], 0xdd),
                          c = _mm512_shuffle_f64x2(pairs[4 + k], pairs[6 + k], 0x88),
                          d = _mm512_shuffle_f64x2(pairs[4 + k], pairs[6 + k], 0xdd);
        rows[k] = _mm512_shuffle_f64x2(a, c, 0x88);
        rows[4 + k] = _mm512_shuffle_f64x2(a, c, 0xdd);
        rows[2 + k] = _mm512_shuffle_f64x2(b, d, 0x88);
        rows[6 + k] = _mm512_shuffle_f64x2(b, d, 0xdd);
    }
}
HOYER_INLINE void transpose(Vec<float> (&rows)[16]) {
    const auto pair = [](Vec<float> v) { return std::bit_cast<Vec<double>>(v); };
    const auto single = [](Vec<double> v) { return std::bit_cast<Vec<float>>(v); };
    Vec<float> fours[16];
#pragma GCC unroll 4
    for (std::size_t i = 0; i < 16; i += 4) {
        const Vec<double> a = pair(_mm512_unpacklo_ps(rows[i], rows[i + 1])),
                          b = pair(_mm512_unpackhi_ps(rows[i], rows[i + 1])),
                          c = pair(_mm512_unpacklo_ps(rows[i + 2], rows[i + 3])),
                          d = pair(_mm512_unpackhi_ps(rows[i + 2], rows[i + 3]));
        fours[i] = single(_mm512_unpacklo_pd(a, c));
        fours[i + 1] = single(_mm512_unpackhi_pd(a, c));
        fours[i + 2] = single(_mm512_unpacklo_pd(b, d));
        fours[i + 3] = single(_mm512_unpackhi_pd(b, d));
    }
#pragma GCC unroll 4
    for (std::size_t k = 0; k < 4; ++k) {
        const Vec<float> a = _mm512_shuffle_f32x4(fours[k], fours[4 + k], 0x88),
                         b = _mm512_shuffle_f32x4(fours[k], fours[4 + k], 0xdd),
                         c = _mm512_shuffle_f32x4(fours[8 + k], fours[12 + k], 0x88),
                         d = _mm512_shuffle_f32x4(fours[8 + k], fours[12 + k], 0xdd);
        rows[k] = _mm512_shuffle_f32x4(a, c, 0x88);
        rows[8 + k] = _mm512_shuffle_f32x4(a, c, 0xdd);
        rows[4 + k] = _mm512_shuffle_f32x4(b, d, 0x88);
        rows[12 + k] = _mm512_shuffle_f32x4(b, d, 0xdd);
    }
}

#else

// An exchange of ever larger squares.
template <class V, std::size_t Width> HOYER_INLINE void transpose(V (&rows)[Width]) {
    using Bits = BitsOf<std::remove_cvref_t<decltype(rows[0][0])>>;
    Vec<Bits> upper, lower;
#pragma GCC unroll 4
    for (std::size_t square = 1; square < Width; square *= 2) {
        for (std::size_t j = 0; j < Width; ++j) {
            upper[j] = static_cast<Bits>(j & square ? j - square + Width : j);
            lower[j] = static_cast<Bits>(j & square ? j + Width : j + square);
        }
#pragma GCC unroll 8
        for (std::size_t i = 0; i < Width; ++i) {
            if (i & square) continue;
            const V a = rows[i], b = rows[i + square];
            rows[i] = __builtin_shuffle(a, b, upper);
            rows[i + square] = __builtin_shuffle(a, b, lower);
        }
    }
}

#endif

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

template <bool Signed, class T> class LaneGroup {
public:
    static constexpr std::size_t lanes = width<T>;
    // Sums run through the vector one entry after the other: harmless for float in double, and for a few doubles.
    static constexpr std::size_t longest = sizeof(T) == 4 ? 256 : 48;

    explicit LaneGroup(std::size_t n)
        : n_(n), entries_(static_cast<T*>(::operator new(n * register_bytes, std::align_val_t{register_bytes}))) {}

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

    // Finds the supports.
    void solve() {
        survey();
        search();
        confirm();
    }

    // Forms what makes the results from the entries; `found` is then false where that is out of the ordinary as well.
    void finish(NormRule rule, const Wide<T>& l2) {
        if (rule == NormRule::keep) rounds_ += T(1);   // the norms are a read, too
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
        return {shift_.get(lane), scale_.get(lane) / norm, count_.get(lane),           reads(lane),
                1,                rho_.get(lane) * norm,   norm, static_cast<double>(Kept::no)};
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

    HOYER_INLINE Vec<T> row(std::size_t i) const { return load(entries_.get() + i * lanes); }

    // Mean, variance and ends, and which lanes are ordinary.
    void survey() {
        const Vec<T> first = row(0);
        Vec<T> sum{}, squares{}, low = first, high = first;
        for (std::size_t i = 1; i < n_; ++i) {
            const Vec<T> v = row(i), t = v - first;
            sum += t;
            squares += t * t;
            high = larger(v, high);
            low = smaller(v, low);
        }
        const Vec<T> n = splat(static_cast<T>(n_)), mean = sum / n;
        squares /= n;
        variance_ = squares - mean * mean;
        middle_ = first + mean;
        low_ = low;
        high_ = high;
        // Where all entries may be the support (maybe_whole) the full search decides.
        const Vec<T> deviation = root(variance_), rest = n - rough_k_;
        const auto part = middle_ - deviation * root(n / rest) * rough_rho_ / root(n) > low + T(1e-4) * deviation;
        // False for NaN and infinity, too.
        active_ = part & (variance_ > T(1e-4) * squares) & (variance_ < T(1e12)) & (variance_ > T(1e-12));
    }

    // Finds a pivot with no entry between itself and alpha (rough_search for all lanes at once).
    void search() {
        const Vec<T> none{}, one = splat(T(1)), rho = rough_rho_, k = rough_k_;
        const Vec<T> share = T(8) * k / (T(3) * static_cast<T>(n_));
        Vec<T> low = low_, high = high_;
        const Vec<T> uniform = high - (high - middle_) * smaller(share, one);
        Vec<T> p = smaller(middle_ + start_ * root(variance_), uniform);
        p = (p >= low) & (p < high) ? p : low;
        Mask active = active_, done{};
        Vec<T> rounds{};
        RoughSums<T> s;
        for (int round = 0; round < 10; ++round) {
            s = {};
            for (std::size_t i = 0; i < n_; ++i) s.see(row(i), p);
            rounds += active ? one : none;
            const Vec<T> count = s.count(), mean = s.sum / count, ratio = s.sum * s.sum / s.squares, excess = count - k;
            const Vec<T> newton = p + (ratio - k) * s.squares / (T(2) * s.sum * (count - ratio));
            const auto enough = excess > none;
            const Vec<T> alpha = p + mean - root((s.squares - mean * s.sum) * count / excess) * rho / count;
            const auto here = active & enough & (s.below <= alpha) & (alpha < s.above);
            done |= here;
            active &= ~here;
            const auto up = enough & (alpha > p);
            low = up ? larger(low, p) : low;
            high = up ? high : smaller(high, enough ? p : s.below);
            Vec<T> next = enough ? alpha : newton;
            next = up & (newton > alpha) & (newton < high) ? newton : next;
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
        Wide<T> r, s1{}, s2{}, under, over, done;
        widen<T>(centre_, r.part);
        widen<T>(inside_, count_.part);
        widen<T>(below_, under.part);
        widen<T>(above_, over.part);
        widen<T>(done_ ? splat(T(1)) : Vec<T>{}, done.part);
        for (std::size_t i = 0; i < n_; ++i) add_above(row(i), pivot_, r.part, s1.part, s2.part);
        const double n = static_cast<double>(n_);
        for (std::size_t j = 0; j < parts; ++j) {
            const Vec<double> none{}, c = count_.part[j], m = s1.part[j] / c;
            const Vec<double> rest = larger(s2.part[j] - m * s1.part[j], none);
            const Vec<double> excess = ((c - n) + room_.part[j]) + room_low_.part[j];
            const Vec<double> size = root(rest * c / excess), base = rho_.part[j] / c, share = 1 / size;
            // In units of the norm: what the neighbours of the pivot would get. Certain means: by a margin.
            const Vec<double> smallest = base + (over.part[j] - r.part[j] - m) * share;
            const Vec<double> largest = base + (under.part[j] - r.part[j] - m) * share, margin = base * 0x1p-45;
            const auto good = (excess > none) & (c * m * m <= rest) & (smallest > margin) & (largest < -margin) & (c < n);
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
    Vec<T> rough_rho_, rough_k_, start_;                              // the targets
    Wide<T> rho_, room_, room_low_;
    Vec<T> middle_, variance_, low_, high_;                           // the survey
    Vec<T> pivot_, below_, above_, inside_, centre_, rounds_;         // the rough search
    Mask active_, done_;
    Wide<T> reference_, count_, mean_, spread_, scale_, certain_;     // the supports
    Wide<T> norm_, shift_;                                            // the results
    Line<T> lines_[lanes];
};

}  // namespace hoyer::inline HOYER_ISA
