// Algorithm 3: products with the Jacobian of the projection, from its result alone, and the derivatives by the target.
//
// With q = |p| - l1/d on the support, e and q are orthogonal and span what e and p span, so the product of fact 7 is
// (y - mean(y) - q <q, y>/<q, q>) / beta there: nothing is subtracted that is nearly equal, and m = K is the case q =
// 0.
#pragma once

#include <cmath>
#include <cstddef>

#include "jobs.hpp"
#include "moments.hpp"
#include "project.hpp"

namespace hoyer::inline HOYER_ISA {

// What Algorithm 3 needs from the forward pass beside the result.
struct Linearization {
    double scale = 0, l1 = 0, l2 = 0;
    Kept kept = Kept::no;
    NormRule norm = NormRule::fixed;
    Mode mode = Mode::forward;
    bool nonnegative = false;
};

// Sums in lanes over blocks, of whatever `term(i)` gives.
template <class Term> HOYER_INLINE double sum_of(std::size_t n, Term term) {
    constexpr std::size_t lane_count = 32;
    Accumulator total;
    for (std::size_t begin = 0; begin < n; begin += block_size) {
        const std::size_t end = std::min(n, begin + block_size);
        double lanes[lane_count]{};
        std::size_t i = begin;
        for (; i + lane_count <= end; i += lane_count)
            for (std::size_t j = 0; j < lane_count; ++j) lanes[j] += term(i + j);
        for (std::size_t j = 0; i < end; ++i, ++j) lanes[j] += term(i);
        for (std::size_t half = lane_count / 2; half > 0; half /= 2)
            for (std::size_t j = 0; j < half; ++j) lanes[j] += lanes[j + half];
        total.add(lanes[0]);
    }
    return total.value();
}

// A power of two near the result's norm: in its units nothing overflows or vanishes when squared.
inline double unit_of(double l2) {
    if (!(l2 > 0) || (l2 > 1e-3 && l2 < 1e3)) return 1;
    return std::ldexp(1.0, std::isfinite(l2) ? std::clamp(std::ilogb(l2), -1022, 1022) : 1022);
}

// The support of a result and its deviations from the mean, in units of `unit`.
template <class T> struct Deviations {
    double unit, count = 0, mean = 0, spread = 0;

    Deviations(const T* p, std::size_t n, double unit) : unit(unit) {
        T low = std::numeric_limits<T>::infinity(), high = 0;
        for (std::size_t i = 0; i < n; ++i) {
            const T w = std::fabs(p[i]);
            if (w > 0) low = std::min(low, w);
            high = std::max(high, w);
        }
        count = sum_of(n, [&](std::size_t i) { return p[i] != 0 ? 1.0 : 0.0; });
        if (count > 0) mean = sum_of(n, [&](std::size_t i) { return size(p[i]); }) / count;
        // Equal entries have no spread at all; rounding of their mean must not invent one.
        if (low < high) spread = sum_of(n, [&](std::size_t i) { return p[i] != 0 ? of(p[i]) * of(p[i]) : 0.0; });
    }
    double size(T value) const { return std::fabs(static_cast<double>(value)) / unit; }
    double of(T value) const { return size(value) - mean; }
};

template <class T> HOYER_INLINE double sign_of(T p) { return p < 0 ? -1.0 : 1.0; }

// Over the support of p: its size, the sum of y with the signs of p, and <p, y> (p in other units).
struct Products {
    Accumulator count, sum, dot;
    void add(const Products& other) {
        count.add(other.count.value());
        sum.add(other.sum.value());
        dot.add(other.dot.value());
    }
};

// y with the sign of p, and nothing outside the support, whatever y is there.
template <class T> HOYER_INLINE Vec<T> on_support(Vec<T> p, Vec<T> y) {
    constexpr BitsOf<T> sign = ~size_mask<T>;
    const BitVec<T> turned = std::bit_cast<BitVec<T>>(y) ^ (std::bit_cast<BitVec<T>>(p) & sign);
    return p != Vec<T>{} ? std::bit_cast<Vec<T>>(turned) : Vec<T>{};
}

// The same for each entry of a register by itself.
template <class T> struct ProductSums {
    static constexpr std::size_t parts = doubles_per<T>;
    double units;
    Vec<double> sums[parts]{}, dots[parts]{};
    Vec<CountOf<T>> count{};

    HOYER_INLINE void see(Vec<T> value, Vec<T> given) {
        count -= value != Vec<T>{};  // a mask is -1
        Vec<double> v[parts], w[parts];
        widen<T>(magnitudes<true, T>(value), v);
        widen<T>(on_support<T>(value, given), w);
#pragma GCC unroll 2
        for (std::size_t k = 0; k < parts; ++k) {
            sums[k] += w[k];
            dots[k] = fused(v[k] * units, w[k], dots[k]);
        }
    }
};

// Calls body(p, y) for every register; the last ones are filled up with zeros.
template <class T, class Body> HOYER_INLINE void for_each_pair(const T* p, const T* y, std::size_t n, Body&& body) {
    std::size_t i = 0;
    for (; i + width<T> <= n; i += width<T>) body(load_once(p + i), load_once(y + i));
    if (i == n) return;
    T values[width<T>]{}, given[width<T>]{};
    std::copy_n(p + i, n - i, values);
    std::copy_n(y + i, n - i, given);
    body(load(values), load(given));
}

template <class T> Products products(const T* p, const T* y, std::size_t n, double units) {
    return sum_over_parts<Products>(n, [&](std::size_t begin, std::size_t size) {
        Products found;
        for (std::size_t i = 0; i < size; i += sum_block<T>) {
            ProductSums<T> block{units};
            for_each_pair(p + begin + i, y + begin + i, std::min(sum_block<T>, size - i),
                          [&](Vec<T> v, Vec<T> w) __attribute__((always_inline)) { block.see(v, w); });
            found.count.add(static_cast<double>(sum_across<CountOf<T>>(block.count)));
            found.sum.add(sum_of_parts(block.sums));
            found.dot.add(sum_of_parts(block.dots));
        }
        return found;
    });
}

template <class T, class NormPart> void fill_zero(T* z, std::size_t n, NormPart norm_part) {
    for (std::size_t i = 0; i < n; ++i) z[i] = static_cast<T>(norm_part(i));
}

// z = value_of(p, y), a register at a time.
template <class T, class Value>
HOYER_INLINE void write_by_register(const T* p, const T* y, T* z, std::size_t n, Value value_of) {
    std::size_t i = 0;
    for_each_pair(p, y, n, [&](Vec<T> v, Vec<T> w) __attribute__((always_inline)) {
        const Vec<T> value = value_of(v, w);
        if (i + width<T> <= n)
            store(z + i, value);
        else
            std::memcpy(z + i, &value, (n - i) * sizeof(T));
        i += width<T>;
    });
}

// z = y * gain + constant * sign(p) + linear * (p * units) on the support: in these units of p nothing overflows that
// the result can hold.
template <class T>
void write_product(const T* p, const T* y, T* z, std::size_t n, double gain, double constant, double linear,
                   double units) {
    constexpr std::size_t parts = doubles_per<T>;
    constexpr std::uint64_t sign = ~size_mask<double>;
    const BitVec<double> offset = std::bit_cast<BitVec<double>>(splat(constant));
    const auto value_of = [&](Vec<T> value, Vec<T> given) __attribute__((always_inline)) {
        Vec<double> v[parts], w[parts];
        widen<T>(value, v);
        widen<T>(given, w);
#pragma GCC unroll 2
        for (std::size_t k = 0; k < parts; ++k) {
            const BitVec<double> turned = offset ^ (std::bit_cast<BitVec<double>>(v[k]) & sign);
            w[k] = fused(splat(linear), v[k] * units, fused(splat(gain), w[k], std::bit_cast<Vec<double>>(turned)));
        }
        return value != Vec<T>{} ? narrowed<T>(w) : Vec<T>{};
    };
    write_by_register(p, y, z, n, value_of);
}

// Adds to the sums of y (with the signs of p), of p y and of ones over the support.
#if defined(__AVX512F__)
HOYER_INLINE std::size_t add_pair(Vec<float> p, Vec<float> y, Vec<float>& sum, Vec<float>& dot) {
    constexpr int turn = 0x78;  // a ^ (b & c)
    const __mmask16 in = _mm512_cmp_ps_mask(p, _mm512_setzero_ps(), _CMP_NEQ_OQ);
    const __m512i sign = _mm512_set1_epi32(static_cast<int>(~size_mask<float>));
    sum += (Vec<float>)_mm512_maskz_ternarylogic_epi32(in, (__m512i)y, (__m512i)p, sign, turn);
    dot = _mm512_mask3_fmadd_ps(p, y, dot, in);
    return static_cast<std::size_t>(std::popcount(static_cast<unsigned>(in)));
}
HOYER_INLINE std::size_t add_pair(Vec<double> p, Vec<double> y, Vec<double>& sum, Vec<double>& dot) {
    constexpr int turn = 0x78;
    const __mmask8 in = _mm512_cmp_pd_mask(p, _mm512_setzero_pd(), _CMP_NEQ_OQ);
    const __m512i sign = _mm512_set1_epi64(static_cast<long long>(~size_mask<double>));
    sum += (Vec<double>)_mm512_maskz_ternarylogic_epi64(in, (__m512i)y, (__m512i)p, sign, turn);
    dot = _mm512_mask3_fmadd_pd(p, y, dot, in);
    return static_cast<std::size_t>(std::popcount(static_cast<unsigned>(in)));
}
#else
template <class V> HOYER_INLINE std::size_t add_pair(V p, V y, V& sum, V& dot) {
    using T = std::remove_cvref_t<decltype(p[0])>;
    const V w = on_support<T>(p, y);
    sum += w;
    dot = fused(magnitudes<true, T>(p), w, dot);
    return static_cast<std::size_t>(std::popcount(above_bits(magnitudes<true, T>(p), V{})));
}
#endif

// Ordinary products of several short vectors: what is done once per vector is done for all of them at once, and the
// arithmetic is mostly that of the data. Its errors are of the size of those in y.
template <class T> class ProductGroup {
public:
    static constexpr std::size_t lanes = width<double>;
    // Sums run through the vector in one chain per entry of a register.
    static constexpr std::size_t longest = sizeof(T) == 4 ? 4096 : sum_block<T>;

    // How many vectors of n entries are best read before the first result is written: what was read is then in the
    // first cache still.
    static std::size_t best_size(std::size_t n) {
        constexpr std::size_t bytes = std::size_t{1} << 13;
        std::size_t size = lanes;
        while (size > 1 && size * n * 2 * sizeof(T) > bytes) size /= 2;
        return size;
    }

    // Reads `size` vectors and finds what makes their products.
    void solve(const T* const (&p)[lanes], const T* const (&y)[lanes], std::size_t n, const Linearization (&at)[lanes],
               std::size_t size) {
        Vec<double> sums[lanes]{}, dots[lanes]{}, count{}, l1{}, l2{}, scale{};
        for (std::size_t l = 0; l < size; ++l) {
            count[l] = static_cast<double>(sum(p[l], y[l], n, sums[l], dots[l]));
            const bool ordinary = at[l].kept == Kept::no && unit_of(at[l].l2) == 1;
            l1[l] = at[l].l1;
            l2[l] = ordinary ? at[l].l2 : 0.0;
            scale[l] = at[l].scale;
        }
        const Vec<double> total = sum_across_each<double>(sums), dot = sum_across_each<double>(dots), none{};
        const Vec<double> p_mean = l1 / count, mean = total / count, square = l2 * l2, gain = 1 / scale;
        const Vec<double> spread = square - l1 * p_mean, slope = (dot - p_mean * total) / spread;
        const Vec<double> constant = (slope * p_mean - mean) * gain, linear = -slope * gain;
        const auto limited = [](Vec<double> v) { return (v > -1e30) & (v < 1e30); };
        const auto good = (l2 > none) & (count > none) & (scale > 1e-30) & (spread > least_spread * square) &
                          limited(gain) & limited(constant) & limited(linear);
        const Vec<double> by_l1 = mean - l1 * slope / count, by_l2 = l2 * slope;
        for (std::size_t l = 0; l < lanes; ++l) {
            lines_[l] = {good[l] != 0, static_cast<T>(gain[l]), static_cast<T>(constant[l]), static_cast<T>(linear[l])};
            along_[l] = {by_l1[l], by_l2[l], dot[l]};
        }
    }
    const TargetProduct& along(std::size_t lane) const { return along_[lane]; }

    // Writes the product of one vector; false if it is out of the ordinary and left to gradient_product.
    bool write(std::size_t lane, const T* p, const T* y, T* z, std::size_t n) const {
        const Line& line = lines_[lane];
        if (!line.ordinary) return false;
        constexpr BitsOf<T> sign = ~size_mask<T>;
        const BitVec<T> offset = std::bit_cast<BitVec<T>>(splat(line.constant));
        const Vec<T> gain = splat(line.gain), linear = splat(line.linear);
        write_by_register(p, y, z, n, [&](Vec<T> v, Vec<T> given) __attribute__((always_inline)) {
            const Vec<T> turned = std::bit_cast<Vec<T>>(offset ^ (std::bit_cast<BitVec<T>>(v) & sign));
            return v != Vec<T>{} ? fused(linear, v, fused(gain, given, turned)) : Vec<T>{};
        });
        return true;
    }

private:
    struct Line {
        bool ordinary;
        T gain, constant, linear;
    };
    // Below this share of l2^2 the errors of <p, y> would grow more than threefold.
    static constexpr double least_spread = 0.1;
    // Registers that are summed in the arithmetic of the data before they are widened.
    static constexpr std::size_t together = 8;

    // Returns the size of the support.
    static std::size_t sum(const T* p, const T* y, std::size_t n, Vec<double>& sums, Vec<double>& dots) {
        Vec<double> wide_sums[doubles_per<T>]{}, wide_dots[doubles_per<T>]{};
        std::size_t i = 0, count = 0;
        const auto add = [&](std::size_t size) __attribute__((always_inline)) {
            Vec<T> some{}, products{};
            for_each_pair(p + i, y + i, size, [&](Vec<T> v, Vec<T> given) __attribute__((always_inline)) {
                count += add_pair(v, given, some, products);
            });
            Vec<double> a[doubles_per<T>], b[doubles_per<T>];
            widen<T>(some, a);
            widen<T>(products, b);
            for (std::size_t k = 0; k < doubles_per<T>; ++k) {
                wide_sums[k] += a[k];
                wide_dots[k] += b[k];
            }
            i += size;
        };
        while (i + together * width<T> <= n) add(together * width<T>);
        if (i < n) add(n - i);
        sums = whole(wide_sums);
        dots = whole(wide_dots);
        return count;
    }
    static HOYER_INLINE Vec<double> whole(const Vec<double> (&parts)[doubles_per<T>]) {
        return doubles_per<T> == 1 ? parts[0] : parts[0] + parts[doubles_per<T> - 1];
    }
    Line lines_[lanes];
    TargetProduct along_[lanes];
};

// z = J y or J^T y for a result p, and the target's own derivatives (fact 7) times y where they are asked for. With the
// "keep" rule x is read as well.
template <class T>
void gradient_product(const T* p, const T* y, const T* x, T* z, std::size_t n, const Linearization& at,
                      TargetProduct* along_target) {
    const double unit = unit_of(at.l2), l1 = at.l1 / unit, l2 = at.l2 / unit;
    const bool forward = at.mode == Mode::forward;
    const auto given = [&](std::size_t i) { return static_cast<double>(y[i]); };
    const auto value = [&](std::size_t i) { return static_cast<double>(p[i]) / unit; };
    const double gain = at.scale > 0 ? 1 / at.scale : 0;

    // The norm's own derivative adds u <v, y>/l2^2: u = v = p, and with "keep" v = x forwards, u = x backwards.
    const bool moving_norm = at.norm != NormRule::fixed && l2 > 0;
    const T* u = at.norm == NormRule::keep && !forward ? x : p;
    const T* v = at.norm == NormRule::keep && forward ? x : p;
    double along = 0;
    if (moving_norm)
        along = sum_of(n, [&](std::size_t i) { return static_cast<double>(v[i]) / unit * given(i); }) / (l2 * l2);
    const auto norm_part = [&](std::size_t i) {
        return moving_norm ? along * (static_cast<double>(u[i]) / unit) : 0.0;
    };

    if (at.kept != Kept::no) {
        // (E - u v^T)/beta: u = v = p/l2 where the L2 norm was set; u = p/l1, v = sign(p) where the L1 norm was.
        const bool to_l1 = at.kept == Kept::to_l1;
        const auto sign = [&](std::size_t i) { return p[i] > 0 ? 1.0 : (p[i] < 0 ? -1.0 : 0.0); };
        const auto left = [&](std::size_t i) { return to_l1 && !forward ? sign(i) : value(i); };
        const auto right = [&](std::size_t i) { return to_l1 && forward ? sign(i) : value(i); };
        const double dot = sum_of(n, [&](std::size_t i) { return right(i) * given(i); }) / (to_l1 ? l1 : l2 * l2);
        if (along_target) {
            const double product = sum_of(n, [&](std::size_t i) { return value(i) * given(i); });
            *along_target = {to_l1 ? product / l1 : 0, to_l1 ? 0 : product / l2, product * unit};
        }
        for (std::size_t i = 0; i < n; ++i) {
            const bool inside = !at.nonnegative || p[i] > 0;
            z[i] = static_cast<T>((inside ? (given(i) - dot * left(i)) * gain : 0.0) + norm_part(i));
        }
        return;
    }

    // One read gives d, sum(y) and <p, y> over the support; with the norms known the rest follows, unless the entries
    // are so nearly equal that l2^2 - l1^2/d has lost its digits.
    const Products sums = products(p, y, n, 1 / unit);
    const double count = sums.count.value(), sum = sums.sum.value();
    if (along_target) *along_target = {0, 0, sums.dot.value() * unit};
    if (count == 0) return fill_zero(z, n, norm_part);
    double p_mean = l1 / count, spread = l2 * l2 - l1 * p_mean;
    const double mean = sum / count;
    double slope = (sums.dot.value() - p_mean * sum) / spread;
    bool spreads = true;
    if (!(spread > 1e-2 * l2 * l2)) {
        const Deviations<T> q(p, n, unit);
        p_mean = q.mean;
        spreads = q.spread > 0;
        slope = spreads ? sum_of(n,
                                 [&](std::size_t i) {
                                     const double deviation = sign_of(p[i]) * given(i) - mean;
                                     return p[i] != 0 ? q.of(p[i]) * deviation : 0.0;
                                 }) /
                              q.spread
                        : 0;
    }
    if (along_target && spreads) {
        along_target->by_l1 = mean - l1 * slope / count;
        along_target->by_l2 = l2 * slope;
    }
    // On the support z = sign * (sign y - mean - slope (|p| - p_mean)) / beta.
    const double constant = (slope * p_mean - mean) * gain, linear = -slope * gain;
    const bool in_place = y == z;
    if (!moving_norm) {
        return write_long(z, n, in_place, [&](std::size_t begin, std::size_t size, T* to) {
            write_product(p + begin, y + begin, to, size, gain, constant, linear, 1 / unit);
        });
    }
    write_long(z, n, in_place, [&](std::size_t begin, std::size_t size, T* to) {
        for (std::size_t i = begin; i < begin + size; ++i) {
            const double v = value(i), inner = given(i) * gain + (v < 0 ? -constant : constant) + linear * v;
            *to++ = static_cast<T>((v != 0 ? inner : 0.0) + norm_part(i));
        }
    });
}

// The derivatives of the result by l1 and by l2 (fact 7), with the signs of p: e/d - l1 q/(d Q) and l2 q/Q on the
// support, Q = <q, q>; zero where Q is.
template <class T> void target_gradient(const T* p, T* by_l1, T* by_l2, std::size_t n, const Linearization& at) {
    const double unit = unit_of(at.l2), l1 = at.l1 / unit, l2 = at.l2 / unit;
    if (at.kept != Kept::no) {
        const bool to_l1 = at.kept == Kept::to_l1;
        for (std::size_t i = 0; i < n; ++i) {
            const double value = static_cast<double>(p[i]) / unit;
            by_l1[i] = to_l1 ? static_cast<T>(value / l1) : T(0);
            by_l2[i] = to_l1 ? T(0) : static_cast<T>(value / l2);
        }
        return;
    }
    const Deviations<T> q(p, n, unit);
    for (std::size_t i = 0; i < n; ++i) {
        const bool inside = q.spread > 0 && p[i] != 0;
        const double s = sign_of(p[i]), along = inside ? q.of(p[i]) / q.spread : 0;
        by_l1[i] = inside ? static_cast<T>(s * (1 - l1 * along) / q.count) : T(0);
        by_l2[i] = inside ? static_cast<T>(s * l2 * along) : T(0);
    }
}

}  // namespace hoyer::inline HOYER_ISA
