// The two things that all searches do with a block of entries: sum those above a pivot, and take those within bounds.
#pragma once

#include "simd/registers.hpp"

namespace hoyer::inline HOYER_ISA {

// An unevaluated sum hi + lo with |lo| <= ulp(hi)/2: twice the digits of a double.
struct DoubleDouble {
    double hi = 0, lo = 0;
};

inline DoubleDouble two_sum(double a, double b) {
    const double sum = a + b, part = sum - a;
    return {sum, (a - (sum - part)) + (b - part)};
}

// A running sum whose rounding errors are added up beside it.
struct Accumulator {
    double sum = 0, carry = 0;
    HOYER_INLINE void add(double term) {
        const DoubleDouble s = two_sum(sum, term);
        sum = s.hi;
        carry += s.lo;
    }
    void add(const Accumulator& other) { add(other.value()); }
    // An overflowed sum has no meaningful carry.
    HOYER_INLINE double value() const { return std::isfinite(sum) ? sum + carry : sum; }
};

constexpr std::size_t block_size = 512;

// Entries between two compensated additions. Equal entries have equal errors, which pile up along a lane: 16 additions
// are enough for doubles; floats in double have digits to spare.
template <class T> constexpr std::size_t sum_block = sizeof(T) == 8 ? std::min(block_size, 32 * width<T>) : block_size;

// One bit per entry of a register: whether it is above the pivot.
#if defined(__AVX512F__)
HOYER_INLINE std::uint64_t above_bits(Vec<float> v, Vec<float> p) { return _mm512_cmp_ps_mask(v, p, _CMP_GT_OQ); }
HOYER_INLINE std::uint64_t above_bits(Vec<double> v, Vec<double> p) { return _mm512_cmp_pd_mask(v, p, _CMP_GT_OQ); }
#elif defined(__AVX2__)
HOYER_INLINE std::uint64_t above_bits(Vec<float> v, Vec<float> p) {
    return static_cast<unsigned>(_mm256_movemask_ps(_mm256_cmp_ps(v, p, _CMP_GT_OQ)));
}
HOYER_INLINE std::uint64_t above_bits(Vec<double> v, Vec<double> p) {
    return static_cast<unsigned>(_mm256_movemask_pd(_mm256_cmp_pd(v, p, _CMP_GT_OQ)));
}
#elif defined(__SSE2__)
HOYER_INLINE std::uint64_t above_bits(Vec<float> v, Vec<float> p) {
    return static_cast<unsigned>(_mm_movemask_ps(_mm_cmpgt_ps(v, p)));
}
HOYER_INLINE std::uint64_t above_bits(Vec<double> v, Vec<double> p) {
    return static_cast<unsigned>(_mm_movemask_pd(_mm_cmpgt_pd(v, p)));
}
#else
template <class V> HOYER_INLINE std::uint64_t above_bits(V v, V p) {
    std::uint64_t bits = 0;
    for (std::size_t i = 0; i < sizeof(V) / sizeof(v[0]); ++i) bits |= std::uint64_t{v[i] > p[i]} << i;
    return bits;
}
#endif

// How many entries are above a pivot.
template <class T> double count_above(const T* x, std::size_t n, T pivot) {
    const Vec<T> p = splat(pivot);
    std::size_t count = 0;
    for_each_register<false, 1>(x, n, -std::numeric_limits<T>::infinity(),
                                [&]<bool>(const T* at, std::size_t) __attribute__((always_inline)) {
                                    count += static_cast<std::size_t>(std::popcount(above_bits(load(at), p)));
                                });
    return static_cast<double>(count);
}

// Over the entries above a pivot: their number, and sums of t = x - reference and of t^2.
struct EntrySums {
    double count = 0, sum = 0, squares = 0;

    void add(const EntrySums& other) {
        count += other.count;
        sum += other.sum;
        squares += other.squares;
    }
};

// The same over many blocks, with compensation.
struct TotalSums {
    Accumulator count, sum, squares;

    HOYER_INLINE void add(const EntrySums& block) {
        count.add(block.count);
        sum.add(block.sum);
        squares.add(block.squares);
    }
    void add(const TotalSums& other) { add(other.value()); }
    HOYER_INLINE EntrySums value() const { return {count.value(), sum.value(), squares.value()}; }
};

// The entries next to a pivot on either side, for each entry of a register, over any number of blocks.
template <class T> struct Neighbours {
    static constexpr T infinity = std::numeric_limits<T>::infinity();
    Vec<T> below = splat(-infinity), above = splat(infinity);
};

// Adds t = x - reference and t^2 to the sums for the entries of a register above a pivot. (Entries are compared, not
// differences: a difference may round to zero.)
template <class V, std::size_t Parts>
HOYER_INLINE void add_above(V v, V pivot, const Vec<double> (&reference)[Parts], Vec<double> (&s1)[Parts],
                            Vec<double> (&s2)[Parts]) {
    using T = std::remove_cvref_t<decltype(v[0])>;
    Vec<double> wide[Parts], threshold[Parts];
    widen<T>(v, wide);
    widen<T>(pivot, threshold);
#pragma GCC unroll 2
    for (std::size_t k = 0; k < Parts; ++k) {
        const Vec<double> t = wide[k] > threshold[k] ? wide[k] - reference[k] : Vec<double>{};
        s1[k] += t;
        s2[k] = fused(t, t, s2[k]);
    }
}
#if defined(__AVX512F__)
// One comparison instead of two.
HOYER_INLINE void add_above(Vec<float> v, Vec<float> pivot, const Vec<double> (&reference)[2], Vec<double> (&s1)[2],
                            Vec<double> (&s2)[2]) {
    const __mmask16 in = _mm512_cmp_ps_mask(v, pivot, _CMP_GT_OQ);
    Vec<double> wide[2];
    widen<float>(v, wide);
    const Vec<double> t0 = _mm512_maskz_sub_pd(static_cast<__mmask8>(in), wide[0], reference[0]),
                      t1 = _mm512_maskz_sub_pd(static_cast<__mmask8>(in >> 8), wide[1], reference[1]);
    s1[0] += t0;
    s1[1] += t1;
    s2[0] = fused(t0, t0, s2[0]);
    s2[1] = fused(t1, t1, s2[1]);
}
#endif

template <std::size_t Parts> HOYER_INLINE Vec<double> joined_parts(const Vec<double> (&parts)[Parts]) {
    if constexpr (Parts == 1)
        return parts[0];
    else
        return parts[0] + parts[1];
}
template <std::size_t Parts> HOYER_INLINE double sum_of_parts(const Vec<double> (&parts)[Parts]) {
    return sum_across<double>(joined_parts(parts));
}

// A block of at most block_size entries.
template <bool Signed, class T>
HOYER_INLINE EntrySums sums_above(const T* x, std::size_t n, T pivot, double reference, Neighbours<T>& near) {
    constexpr T infinity = std::numeric_limits<T>::infinity();
    const Vec<T> p = splat(pivot), highest = splat(infinity), lowest = splat(-infinity);
    Vec<double> r[doubles_per<T>], s1[2][doubles_per<T>]{}, s2[2][doubles_per<T>]{};
    std::fill_n(r, doubles_per<T>, splat(reference));
    std::size_t count = 0;
    for_each_register<Signed, 2>(x, n, -infinity,
                                 [&]<bool S>(const T* at, std::size_t c) __attribute__((always_inline)) {
                                     const Vec<T> v = load_magnitudes<S>(at);
                                     const auto in = v > p;
                                     count += static_cast<std::size_t>(std::popcount(above_bits(v, p)));
                                     near.above = smaller(in ? v : highest, near.above);
                                     near.below = larger(in ? lowest : v, near.below);
                                     add_above(v, p, r, s1[c], s2[c]);
                                 });
    return {static_cast<double>(count), sum_of_parts(s1[0]) + sum_of_parts(s1[1]),
            sum_of_parts(s2[0]) + sum_of_parts(s2[1])};
}

constexpr std::size_t append_margin = 64 / sizeof(float);  // what append may touch beyond what it appends

// Writes the entries of v whose bits are set one after the other to `to`.
#if defined(__AVX512F__)
HOYER_INLINE void append(Vec<float> v, std::uint64_t chosen, float* to) {
    _mm512_storeu_ps(to, _mm512_maskz_compress_ps(static_cast<__mmask16>(chosen), v));
}
HOYER_INLINE void append(Vec<double> v, std::uint64_t chosen, double* to) {
    _mm512_storeu_pd(to, _mm512_maskz_compress_pd(static_cast<__mmask8>(chosen), v));
}
#elif defined(__AVX2__)
// For each mask the order that brings the chosen 32-bit words to the front.
inline constexpr auto word_order = [] {
    std::array<std::array<std::int32_t, 8>, 256> table{};
    for (unsigned mask = 0; mask < 256; ++mask) {
        int filled = 0;
        for (int word = 0; word < 8; ++word)
            if (mask >> word & 1) table[mask][filled++] = word;
    }
    return table;
}();
HOYER_INLINE void append(Vec<float> v, std::uint64_t chosen, float* to) {
    const auto* order = reinterpret_cast<const __m256i*>(word_order[chosen].data());
    _mm256_storeu_ps(to, _mm256_permutevar8x32_ps(v, _mm256_loadu_si256(order)));
}
HOYER_INLINE void append(Vec<double> v, std::uint64_t chosen, double* to) {
    // Every double is two words: bit b of the mask becomes bits 2b and 2b + 1.
    append((Vec<float>)v, _pdep_u32(static_cast<unsigned>(chosen), 0x55) * 3, reinterpret_cast<float*>(to));
}
#else
template <class V, class T> HOYER_INLINE void append(V v, std::uint64_t chosen, T* to) {
    for (; chosen; chosen &= chosen - 1) *to++ = v[std::countr_zero(chosen)];
}
#endif

// Does so with those above `low`, and returns how many.
template <class V, class T> HOYER_INLINE std::size_t append_above(V v, V low, T* to) {
#if defined(__AVX2__)
    const std::uint64_t chosen = above_bits(v, low);
    append(v, chosen, to);
    return static_cast<std::size_t>(std::popcount(chosen));
#else
    std::size_t count = 0;
    for (std::size_t i = 0; i < width<T>; ++i) {
        to[count] = v[i];
        count += v[i] > low[i];
    }
    return count;
#endif
}

// What is looked for: entries in (low, high] are taken, those above `high` summed about `centre`.
template <class T> struct Bracket {
    T low{}, high = std::numeric_limits<T>::infinity();
    double centre = 0;
    bool two_sided() const { return high != std::numeric_limits<T>::infinity(); }
};

// How a block is read: all above `low` is taken, and that is much; it is little; it is so little that positions are
// worth noting; or there is an upper end as well.
enum class Reading { much, little, rare, two_sided };

// A sum of doubles with compensation for each place of a register by itself.
struct LaneAccumulator {
    Vec<double> sum{}, carry{};

    HOYER_INLINE void add(Vec<double> term) {
        const Vec<double> total = sum + term, part = total - sum;
        carry += (sum - (total - part)) + (term - part);
        sum = total;
    }
    double value() const {
        Accumulator all;
        for (std::size_t lane = 0; lane < width<double>; ++lane) {
            all.add(sum[lane]);
            all.add(carry[lane]);
        }
        return all.value();
    }
};

// What comes of it, over all blocks.
template <class T> struct Taken {
    T* entries;               // append_margin entries more may be touched
    std::int64_t* positions;  // of Reading::rare
    BitVec<T> largest;        // the largest magnitude of each entry of a register, as bits
    std::size_t beyond;       // of Reading::two_sided: the entries above the bracket,
    LaneAccumulator sum, squares;

    EntrySums above() const { return {static_cast<double>(beyond), sum.value(), squares.value()}; }
};

// Takes the entries of a block, whose first entry is number `first`, and returns how many. What a mask leaves out is as
// large as the lower end of the bracket here: not inside, and not large.
template <bool Signed, Reading How, bool Masked = false, class T>
HOYER_INLINE std::size_t take_block(const T* x, std::size_t n, const Bracket<T>& bracket, std::int64_t first,
                                    Taken<T>& taken, [[maybe_unused]] Mask mask = nullptr) {
    constexpr bool two_sided = How == Reading::two_sided;
    constexpr std::size_t group = 64;
    const Vec<T> low = splat(bracket.low), high = splat(bracket.high);
    Vec<double> centre[doubles_per<T>];
    std::fill_n(centre, doubles_per<T>, splat(bracket.centre));
    // Two chains of additions.
    Vec<double> s1[2][doubles_per<T>]{}, s2[2][doubles_per<T>]{};
    BitVec<T> largest = taken.largest;
    std::size_t count = 0, above = 0;
    // A register's worth of entries, the k-th of a group: bits of those inside the bracket.
    const auto look = [&](Vec<T> v, std::size_t k, std::uint64_t& inside) __attribute__((always_inline)) {
        largest = larger(largest, size_bits_of<T>(v));
        if constexpr (How == Reading::much) {
            count += append_above(v, low, taken.entries + count);
        } else {
            std::uint64_t bits = above_bits(v, low);
            if constexpr (two_sided) {
                const std::uint64_t beyond = above_bits(v, high);
                above += static_cast<std::size_t>(std::popcount(beyond));
                bits &= ~beyond;
            }
            inside |= bits << (k * width<T>);
        }
        if constexpr (two_sided) add_above(v, high, centre, s1[k % 2], s2[k % 2]);
    };
    const auto take = [&](std::size_t begin, std::uint64_t inside) __attribute__((always_inline)) {
        for (; inside; inside &= inside - 1) {
            const std::size_t i = begin + static_cast<std::size_t>(std::countr_zero(inside));
            taken.entries[count] = magnitude<Signed>(x[i]);
            if constexpr (How == Reading::rare) taken.positions[count] = first + static_cast<std::int64_t>(i);
            ++count;
        }
    };
    // The same for a whole group with few inside: the first four are taken without asking, since a processor that
    // guesses their number is mostly wrong.
    const auto take_few = [&](std::size_t begin, std::uint64_t inside) __attribute__((always_inline)) {
        constexpr std::uint64_t last = std::uint64_t{1} << (group - 1);
        const std::size_t after = count + static_cast<std::size_t>(std::popcount(inside));
#pragma GCC unroll 4
        for (std::size_t k = 0; k < 4; ++k, inside &= inside - 1)
            taken.entries[count + k] =
                magnitude<Signed>(x[begin + static_cast<std::size_t>(std::countr_zero(inside | last))]);
        count += 4;
        if (after > count) take(begin, inside);
        count = after;
    };
    std::size_t i = 0;
    for (; i + group <= n; i += group) {
        std::uint64_t inside = 0;
#pragma GCC unroll 8
        for (std::size_t k = 0; k < group / width<T>; ++k) {
            const std::size_t at = i + k * width<T>;
            Vec<T> v = load_magnitudes<Signed>(x + at);
            if constexpr (Masked) v = kept(v, mask + at, low);
            look(v, k, inside);
        }
        if constexpr (How == Reading::little || two_sided)
            take_few(i, inside);
        else if constexpr (How == Reading::rare)
            take(i, inside);
    }
    if (i < n) {
        // Filled up likewise.
        T last[group];
        std::fill_n(last, group, bracket.low);
        for (std::size_t j = i; j < n; ++j)
            if (!Masked || mask[j]) last[j - i] = magnitude<Signed>(x[j]);
        std::uint64_t inside = 0;
        for (std::size_t k = 0; k * width<T> < n - i; ++k) look(load(last + k * width<T>), k, inside);
        take(i, inside);
    }
    taken.largest = largest;
    if constexpr (two_sided) {
        taken.beyond += above;
        taken.sum.add(joined_parts(s1[0]) + joined_parts(s1[1]));
        taken.squares.add(joined_parts(s2[0]) + joined_parts(s2[1]));
    }
    return count;
}

}  // namespace hoyer::inline HOYER_ISA
