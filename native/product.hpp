// Algorithm 3: products with the Jacobian of the projection, from its result alone, and the derivatives by the target.
//
// On the support, with q = |p| - l1/d, a product is (y - mean(y) - q <q, y>/<q, q>) / beta (closed_form.hpp). As many
// largest entries as K are the case q = 0; where l1 binds alone the last term is missing, and beta is 1.
#pragma once

#include "closed_form.hpp"
#include "noted.hpp"
#include "write.hpp"

namespace hoyer::inline HOYER_ISA {

// A solved projection: what Algorithm 3 needs of it beside the result.
struct Solved {
    double scale = 0, l1 = 0, l2 = 0;
    Active active = Active::both;
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

template <class T> HOYER_INLINE double sign_of(T p) { return p < 0 ? -1.0 : 1.0; }

// A product with a factor that need not be a float itself: what it multiplies may be as small as it is large.
struct Factor {
    double first = 0, second = 1;

    Factor() = default;
    Factor(double fraction, int exponent) {
        int more;
        fraction = std::frexp(fraction, &more);
        exponent = std::clamp(exponent + more, -2040, 2040);
        first = std::ldexp(fraction, exponent / 2);
        second = std::ldexp(1.0, exponent - exponent / 2);
    }
    double operator()(double value) const { return value * first * second; }
};

// a/b for positive numbers.
inline Factor quotient(double a, double b) {
    int exponents[2];
    const double fraction = std::frexp(a, &exponents[0]) / std::frexp(b, &exponents[1]);
    return {fraction, exponents[0] - exponents[1]};
}

// Over the support of p: the deviations of w from their mean, w being p itself, or x, which differs from p by shift and
// scale alone and has digits that p has lost to rounding. Signs are those of p. All in units of a power of two, as
// differences from one of the entries.
template <class T> class Deviations {
public:
    double unit = 1, count = 0, spread = 0;

    Deviations(const T* p, const T* w, std::size_t n) : p_(p), w_(w) {
        T low = std::numeric_limits<T>::infinity(), high = -low, largest = 0;
        for (std::size_t i = 0; i < n; ++i) {
            if (p[i] == 0) continue;
            const T v = p[i] < 0 ? -w[i] : w[i];
            low = std::min(low, v);
            high = std::max(high, v);
            largest = std::max(largest, std::fabs(v));
        }
        unit = unit_of(largest);
        count = sum_of(n, [&](std::size_t i) { return p[i] != 0 ? 1.0 : 0.0; });
        if (count == 0) return;
        reference_ = static_cast<double>(low) / unit;
        rest_ = sum_of(n, [&](std::size_t i) { return (*this)(i); }) / count;
        // Equal entries have no spread at all; rounding of their mean must not invent one.
        if (low < high) spread = sum_of(n, [&](std::size_t i) { return (*this)(i) * (*this)(i); });
    }
    // Zero outside of the support.
    double operator()(std::size_t i) const {
        return p_[i] != 0 ? sign_of(p_[i]) * static_cast<double>(w_[i]) / unit - reference_ - rest_ : 0.0;
    }

private:
    const T *p_, *w_;
    double reference_ = 0, rest_ = 0;  // their sum is the mean
};

// The norms of a result in units of a power of two. Near the largest float they need not be floats though p is: then
// they are taken from p.
struct ResultNorms {
    double unit, l1, l2;

    template <class T> ResultNorms(const T* p, std::size_t n, const Solved& at) {
        unit = unit_of(at.l2);
        l1 = at.l1 / unit;
        l2 = at.l2 / unit;
        if (std::isfinite(at.l1)) return;
        l1 = sum_of(n, [&](std::size_t i) { return std::fabs(static_cast<double>(p[i])) / unit; });
        const auto square = [&](std::size_t i) { return std::pow(static_cast<double>(p[i]) / unit, 2); };
        if (!std::isfinite(at.l2)) l2 = std::sqrt(sum_of(n, square));
    }
};

// What a unit of these deviations of x, or of p itself, is in the result, in its own units. Where beta is no float it
// follows from the spread of both.
template <class T>
double result_units(const Deviations<T>& q, const T* p, bool of_x, std::size_t n, double scale, double unit) {
    if (!of_x) return q.unit / unit;
    if (std::isnormal(scale)) return quotient(q.unit, scale)(1 / unit);
    const Deviations<T> own(p, p, n);
    return std::sqrt(own.spread / q.spread) * (own.unit / unit);
}

// y with the sign of p, and nothing outside the support, whatever y is there.
template <class T> HOYER_INLINE Vec<T> on_support(Vec<T> p, Vec<T> y) {
    constexpr BitsOf<T> sign = ~size_mask<T>;
    const BitVec<T> turned = std::bit_cast<BitVec<T>>(y) ^ (std::bit_cast<BitVec<T>>(p) & sign);
    return p != Vec<T>{} ? std::bit_cast<Vec<T>>(turned) : Vec<T>{};
}

// Over the support of p, for each entry of a register by itself: its size, the sum of y with the signs of p, and <p,
// y>.
template <class T> struct ProductSums {
    static constexpr std::size_t parts = doubles_per<T>;
    double units, y_units;
    Vec<double> sums[parts]{}, dots[parts]{};
    Vec<CountOf<T>> count{};

    HOYER_INLINE void see(Vec<T> value, Vec<T> given) {
        count -= value != Vec<T>{};  // a mask is -1
        Vec<double> v[parts], w[parts];
        widen<T>(magnitudes<true, T>(value), v);
        widen<T>(on_support<T>(value, given), w);
#pragma GCC unroll 2
        for (std::size_t k = 0; k < parts; ++k) {
            w[k] *= y_units;
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

struct Products {
    double count, sum, dot;
};

// The same over the vector, whose support is noted meanwhile.
template <class T>
Products products(const T* p, const T* y, std::size_t n, double units, double y_units, NotedSupport<T>& noted) {
    const auto total = sum_over_parts<TotalSums>(n, [&](std::size_t begin, std::size_t size) {
        TotalSums part;
        for (std::size_t i = 0; i < size; i += sum_block<T>) {
            ProductSums<T> block{units, y_units};
            const T *values = p + begin + i, *given = y + begin + i;
            const std::size_t some = std::min(sum_block<T>, size - i);
            for_each_pair(values, given, some,
                          [&](Vec<T> v, Vec<T> w) __attribute__((always_inline)) { block.see(v, w); });
            const auto count = sum_across<CountOf<T>>(block.count);
            noted.note(begin + i, values, given, some, static_cast<std::size_t>(count));
            part.add(EntrySums{static_cast<double>(count), sum_of_parts(block.sums), sum_of_parts(block.dots)});
        }
        return part;
    });
    return {total.count.value(), total.sum.value(), total.squares.value()};
}

// z = value_of(p, y), a register at a time.
template <Stores How = Stores::cached, class T, class Value>
HOYER_INLINE void write_by_register(const T* p, const T* y, T* z, std::size_t n, Value value_of) {
    std::size_t i = 0;
    for_each_pair(p, y, n, [&](Vec<T> v, Vec<T> w) __attribute__((always_inline)) {
        const Vec<T> value = value_of(v, w);
        if (i + width<T> <= n)
            store<How>(z + i, value);
        else
            std::memcpy(z + i, &value, (n - i) * sizeof(T));
        i += width<T>;
    });
}

// z = y * gain + constant * sign(p) + linear * (p * units) on the support, by parts: in these units of p nothing
// overflows that the result can hold.
template <class T> struct LinearProduct {
    const T *p, *y;
    double gain, constant, linear, units;

    template <Stores How> void fill(std::size_t begin, std::size_t size, T* to) const {
        constexpr std::size_t parts = doubles_per<T>;
        constexpr std::uint64_t sign = ~size_mask<double>;
        const BitVec<double> offset = std::bit_cast<BitVec<double>>(splat(constant));
        const Vec<double> slope = splat(linear), factor = splat(gain), unit = splat(units);
        const auto value_of = [&](Vec<T> value, Vec<T> given) __attribute__((always_inline)) {
            Vec<double> v[parts], w[parts];
            widen<T>(value, v);
            widen<T>(given, w);
#pragma GCC unroll 2
            for (std::size_t k = 0; k < parts; ++k) {
                const BitVec<double> turned = offset ^ (std::bit_cast<BitVec<double>>(v[k]) & sign);
                w[k] = fused(slope, v[k] * unit, fused(factor, w[k], std::bit_cast<Vec<double>>(turned)));
            }
            return value != Vec<T>{} ? narrowed<T>(w) : Vec<T>{};
        };
        write_by_register<How>(p + begin, y + begin, to, size, value_of);
    }
};

// The same, from what was noted where that is known.
template <class T> struct NotedProduct {
    const LinearProduct<T>& product;
    const NotedSupport<T>& noted;

    template <Stores How> void fill(std::size_t begin, std::size_t size, T* to) const {
        if (noted.has(begin / part_size))
            noted.template fill<How>(begin, size, to);
        else
            product.template fill<How>(begin, size, to);
    }
};

// Adds to the sums of y (with the signs of p), of p y and of ones over the support, for each entry of a register by
// itself.
#if defined(__AVX512F__)
HOYER_INLINE void add_pair(Vec<float> p, Vec<float> y, Vec<float>& sum, Vec<float>& dot, Vec<std::int32_t>& count) {
    constexpr int turn = 0x78;  // a ^ (b & c)
    const __mmask16 in = _mm512_cmp_ps_mask(p, _mm512_setzero_ps(), _CMP_NEQ_OQ);
    const __m512i sign = _mm512_set1_epi32(static_cast<int>(~size_mask<float>)), counted = (__m512i)count;
    dot = _mm512_mask3_fmadd_ps(p, y, dot, in);
    sum += (Vec<float>)_mm512_maskz_ternarylogic_epi32(in, (__m512i)y, (__m512i)p, sign, turn);
    count = (Vec<std::int32_t>)_mm512_mask_sub_epi32(counted, in, counted, _mm512_set1_epi32(-1));
}
HOYER_INLINE void add_pair(Vec<double> p, Vec<double> y, Vec<double>& sum, Vec<double>& dot, Vec<std::int64_t>& count) {
    constexpr int turn = 0x78;
    const __mmask8 in = _mm512_cmp_pd_mask(p, _mm512_setzero_pd(), _CMP_NEQ_OQ);
    const __m512i sign = _mm512_set1_epi64(static_cast<long long>(~size_mask<double>)), counted = (__m512i)count;
    dot = _mm512_mask3_fmadd_pd(p, y, dot, in);
    sum += (Vec<double>)_mm512_maskz_ternarylogic_epi64(in, (__m512i)y, (__m512i)p, sign, turn);
    count = (Vec<std::int64_t>)_mm512_mask_sub_epi64(counted, in, counted, _mm512_set1_epi64(-1));
}
#else
template <class V, class Count> HOYER_INLINE void add_pair(V p, V y, V& sum, V& dot, Count& count) {
    using T = std::remove_cvref_t<decltype(p[0])>;
    const V w = on_support<T>(p, y);
    dot = fused(magnitudes<true, T>(p), w, dot);
    sum += w;
    count -= p != V{};  // a mask is -1
}
#endif

// Below this share of l2^2 the spread of a result, the difference l2^2 - l1^2/d, has lost too many digits if it is
// taken from the norms that were asked for, which a result in float has only up to rounding.
inline constexpr double least_spread = 0.15;
// The same if it is taken from the result's own norms, summed in double.
inline constexpr double least_own_spread = 1e-6;

// Short vectors up to this length have ordinary products. Sums run through them in one chain per entry of a register.
template <class T> constexpr std::size_t longest_product = sizeof(T) == 4 ? 4096 : sum_block<T>;

// Ordinary products of one short vector, or of as many as a register has doubles: what is done once per vector is then
// done for all of them at once. The arithmetic is mostly that of the data. Its errors are of the size of those in y.
template <class T, std::size_t Size> class ProductGroup {
    using Number = std::conditional_t<Size == 1, double, Vec<double>>;

public:
    // Reads a vector.
    HOYER_INLINE void read(std::size_t lane, const T* p, const T* y, std::size_t n, const Solved& at) {
        Vec<double> sums[doubles_per<T>]{}, dots[doubles_per<T>]{}, counts[doubles_per<T>];
        Vec<CountOf<T>> inside{};
        const auto add = [&](std::size_t i, std::size_t size) __attribute__((always_inline)) {
            Vec<T> some{}, products{};
            for_each_pair(p + i, y + i, size, [&](Vec<T> v, Vec<T> given) __attribute__((always_inline)) {
                add_pair(v, given, some, products, inside);
            });
            Vec<double> a[doubles_per<T>], b[doubles_per<T>];
            widen<T>(some, a);
            widen<T>(products, b);
            for (std::size_t k = 0; k < doubles_per<T>; ++k) {
                sums[k] += a[k];
                dots[k] += b[k];
            }
        };
        std::size_t i = 0;
        for (; i + block <= n; i += block) add(i, block);
        if (i < n) add(i, n - i);
        sums_[lane] = joined_parts(sums);
        dots_[lane] = joined_parts(dots);
        widen<T>(__builtin_convertvector(inside, Vec<T>), counts);
        counts_[lane] = joined_parts(counts);
        const bool both = at.active == Active::both && unit_of(at.l2) == 1;
        alone_[lane] = at.active == Active::l1;
        l1_[lane] = at.l1;
        // Where l1 binds alone no squares are needed.
        l2_[lane] = both ? at.l2 : alone_[lane];
        scale_[lane] = at.scale;
    }
    // Finds what makes the products of the first `size` vectors.
    HOYER_INLINE void solve(std::size_t size) {
        for (std::size_t lane = size; lane < Size; ++lane) sums_[lane] = dots_[lane] = counts_[lane] = Vec<double>{};
        const Number l1 = numbers(l1_), l2 = numbers(l2_), scale = numbers(scale_), count = total(counts_),
                     sum = total(sums_), all = total(dots_), none{};
        const auto with_l2 = numbers(alone_) == none;
        const Derivative<Number> by(l1, l2, count, sum, all, with_l2);
        const Number dot = with_l2 ? all : l1 * by.by_l1;
        const Number gain = 1 / scale, constant = by.constant() * gain, linear = -by.slope * gain;
        const auto limited = [](Number v) { return (v > -1e30) & (v < 1e30); };
        // Where both sums are tiny, so may be y, whose products with p lose their digits then.
        const Number seen = larger(sum, -sum) + larger(dot, -dot);
        const auto good = (l2 > none) & (count > none) & (scale > 1e-30) & (scale < 1e30) & (seen > least_size) &
                          (by.spread > least_spread * (l2 * l2)) & limited(gain) & limited(constant) & limited(linear);
        const Number ones = none + 1;
        keep(good ? ones : none, ordinary_);
        keep(gain, gain_);
        keep(constant, constant_);
        keep(linear, linear_);
        keep(by.by_l1, by_l1_);
        keep(by.by_l2, by_l2_);
        keep(dot, by_both_);
    }
    // Whether a product is ordinary; any other is left to Product.
    bool ordinary(std::size_t lane) const { return ordinary_[lane] != 0; }
    TargetProduct target_product(std::size_t lane) const { return {by_l1_[lane], by_l2_[lane], by_both_[lane]}; }

    // Writes the product of a vector.
    HOYER_INLINE void write(std::size_t lane, const T* p, const T* y, T* z, std::size_t n) const {
        constexpr BitsOf<T> sign = ~size_mask<T>;
        const BitVec<T> offset = std::bit_cast<BitVec<T>>(splat(static_cast<T>(constant_[lane])));
        const Vec<T> gain = splat(static_cast<T>(gain_[lane])), linear = splat(static_cast<T>(linear_[lane]));
        write_by_register(p, y, z, n, [&](Vec<T> v, Vec<T> given) __attribute__((always_inline)) {
            const Vec<T> turned = std::bit_cast<Vec<T>>(offset ^ (std::bit_cast<BitVec<T>>(v) & sign));
            return v != Vec<T>{} ? fused(linear, v, fused(gain, given, turned)) : Vec<T>{};
        });
    }

private:
    static constexpr double least_size = sizeof(T) == 4 ? 1e-25 : 1e-250;
    // Entries that are summed in the arithmetic of the data before they are widened.
    static constexpr std::size_t block = 8 * width<T>;
    using Each = double[Size];

    static HOYER_INLINE Number numbers(const Each& each) {
        Number result;
        std::memcpy(&result, each, sizeof result);
        return result;
    }
    static HOYER_INLINE void keep(Number number, Each& each) { std::memcpy(each, &number, sizeof number); }
    static HOYER_INLINE Number total(Vec<double> (&each)[Size]) {
        if constexpr (Size == 1)
            return sum_across<double>(each[0]);
        else
            return sum_across_each<double>(each);
    }

    Vec<double> sums_[Size], dots_[Size], counts_[Size];
    Each l1_{}, l2_{}, scale_{}, alone_{}, ordinary_, gain_, constant_, linear_, by_l1_, by_l2_, by_both_;
};

// z = J y or J^T y for one result p, and the target's own derivatives times y where they are asked for. Any
// scale of p, y and beta: what a product needs is only that max|y|/beta is a float.
template <class T> class Product {
public:
    Product(const T* p, const T* y, const T* x, T* z, std::size_t n, const Solved& at, TargetProduct* by_target,
            std::size_t cache_bytes = 0)
        : p_(p),
          y_(y),
          x_(x),
          z_(z),
          n_(n),
          at_(at),
          by_target_(by_target),
          cache_bytes_(cache_bytes),
          norms_(p, n, at) {}

    void run() {
        if (at_.active == Active::none) return unchanged();
        const bool both = at_.active == Active::both;
        if (!both && at_.active != Active::l1) return direction();
        // One read gives d, sum(y) and <p, y> over the support; with the norms known, or read as well, the rest
        // follows, unless the entries are so nearly equal that l2^2 - l1^2/d has lost its digits.
        NotedSupport<T> noted;
        if (!moving_norm()) noted = NotedSupport<T>(n_, cache_bytes_);
        Products sums = products(p_, y_, n_, 1 / unit_, 1.0, noted);
        if (choose_unit(sums)) {
            noted = {};
            sums = products(p_, y_, n_, 1 / unit_, 1 / y_unit_, noted);
        }
        const double count = sums.count, dot = sums.dot;
        Derivative<double> by(l1_, l2_, count, sums.sum, dot, both);
        if (by_target_) *by_target_ = {0, 0, (both ? dot : count > 0 ? l1_ * by.by_l1 : 0) * unit_ * y_unit_};
        if (both && count > 0 && !(by.spread > least_spread * l2_ * l2_ && normal_scale())) {
            if (!own_norms_tell()) return by_deviations(by.mean);
            const Norms own = norms<false>(p_, n_);
            by = {own.sum / unit_, own.l2() / unit_, count, sums.sum, dot, both};
            if (!(by.spread > least_own_spread * l2_ * l2_)) return by_deviations(by.mean);
        }
        find_norm_part();
        if (by_target_ && count > 0) *by_target_ = {y_unit_ * by.by_l1, y_unit_ * by.by_l2, by_target_->by_both};
        const double slope = count > 0 ? by.slope : 0, constant = count > 0 ? by.constant() : 0;
        const bool plain = y_unit_ == 1 && (at_.scale == 0 || (at_.scale > 1e-150 && at_.scale < 1e150));
        if (!moving_norm() && plain) {
            const double gain = at_.scale > 0 ? 1 / at_.scale : 0;
            const LinearProduct<T> product{p_, y_, gain, constant * gain, -slope * gain, 1 / unit_};
            noted.replace([&](const T* p, T* y, std::size_t size) {
                const LinearProduct<T> noted_product{
                    p, y, product.gain, product.constant, product.linear, product.units};
                noted_product.template fill<Stores::cached>(0, size, y);
            });
            return write_long(z_, n_, y_ == z_, NotedProduct<T>{product, noted}, cache_bytes_);
        }
        const Factor gain = at_.scale > 0 ? quotient(y_unit_, at_.scale) : Factor();
        write([&](std::size_t i) {
            const double v = value(i);
            return v != 0 ? gain(given(i) + (v < 0 ? -constant : constant) - slope * v) : 0.0;
        });
    }

private:
    double given(std::size_t i) const { return static_cast<double>(y_[i]) / y_unit_; }
    double value(std::size_t i) const { return static_cast<double>(p_[i]) / unit_; }
    bool normal_scale() const { return at_.scale == 0 || std::isnormal(at_.scale); }
    // Whether the norms of the result itself say more than those that were asked for.
    bool own_norms_tell() const { return sizeof(T) == 4 && !x_ && normal_scale(); }
    bool moving_norm() const { return (at_.norm == NormRule::keep || at_.norm == NormRule::nearest) && l2_ > 0; }

    // Where sums of y (or of its products) leave the range of doubles, y is measured in units of its own size. The
    // sums of floats never do. True if there are such units.
    bool choose_unit(const Products& sums) {
        const double size = std::fabs(sums.sum) + std::fabs(sums.dot);
        if (sizeof(T) == 4 || (size > 1e-150 && size < 1e150)) return false;
        measure_y(at_.norm != NormRule::keep);
        return y_unit_ != 1;
    }
    void measure_y(bool on_support) {
        double largest = 0;
        for (std::size_t i = 0; i < n_; ++i) {
            const double size = std::fabs(static_cast<double>(y_[i]));
            // Infinite entries are what they are in any unit.
            if ((!on_support || p_[i] != 0) && size < HUGE_VAL) largest = std::max(largest, size);
        }
        y_unit_ = unit_of(largest);
    }

    // The norm's own derivative adds u <v, y>/l2^2: u = v = p, and with "keep" v = x forwards, u = x backwards.
    void find_norm_part() {
        if (!moving_norm()) return;
        const bool forward = at_.mode == Mode::forward, keep = at_.norm == NormRule::keep;
        const T* v = keep && forward ? x_ : p_;
        u_ = keep && !forward ? x_ : p_;
        // What v does not touch may be infinite.
        const auto term = [&](std::size_t i) { return v[i] != 0 ? static_cast<double>(v[i]) / unit_ * given(i) : 0.0; };
        norm_part_ = sum_of(n_, term) / (l2_ * l2_);
    }
    template <class Inner> void write(Inner inner) {
        write_parts([&](std::size_t begin, std::size_t size, T* to) {
            for (std::size_t i = begin; i < begin + size; ++i) {
                const double by_norm = u_ ? norm_part_ * (static_cast<double>(u_[i]) / unit_) * y_unit_ : 0.0;
                *to++ = static_cast<T>(inner(i) + by_norm);
            }
        });
    }
    template <class Part> void write_parts(Part part) {
        write_long(z_, n_, y_ == z_, ByBlocks<T, Part>(part), cache_bytes_);
    }

    // Vectors within all bounds.
    void unchanged() {
        if (by_target_) *by_target_ = {0, 0, 0};
        write_parts([&](std::size_t begin, std::size_t size, T* to) {
            for (std::size_t i = begin; i < begin + size; ++i) *to++ = !at_.nonnegative || p_[i] > 0 ? y_[i] : T(0);
        });
    }

    // Vectors that kept their direction: (E - u v^T)/beta, u = v = p/l2 where the L2 norm was set, u = p/l1, v =
    // sign(p) where the L1 norm was.
    void direction() {
        const bool to_l1 = at_.active == Active::l1_direction, forward = at_.mode == Mode::forward;
        measure_y(at_.nonnegative && at_.norm != NormRule::keep);
        find_norm_part();
        const auto sign = [&](std::size_t i) { return p_[i] > 0 ? 1.0 : (p_[i] < 0 ? -1.0 : 0.0); };
        const auto left = [&](std::size_t i) { return to_l1 && !forward ? sign(i) : value(i); };
        const auto right = [&](std::size_t i) { return to_l1 && forward ? sign(i) : value(i); };
        const auto seen = [&](std::size_t i) { return p_[i] != 0 ? given(i) : 0.0; };
        const double dot = sum_of(n_, [&](std::size_t i) { return right(i) * seen(i); }) / (to_l1 ? l1_ : l2_ * l2_);
        if (by_target_) {
            const double product = sum_of(n_, [&](std::size_t i) { return value(i) * seen(i); }) * y_unit_;
            *by_target_ = {to_l1 ? product / l1_ : 0, to_l1 ? 0 : product / l2_, product * unit_};
        }
        const Factor gain = direction_gain(to_l1);
        write([&](std::size_t i) {
            const bool inside = !at_.nonnegative || p_[i] > 0;
            return inside ? gain(given(i) - dot * left(i)) : 0.0;
        });
    }

    // 1/beta in units of y; beta is the ratio of the norms of x and p where it is no float.
    Factor direction_gain(bool to_l1) const {
        if (normal_scale() || !x_) return at_.scale > 0 ? quotient(y_unit_, at_.scale) : Factor();
        double largest = 0;
        for (std::size_t i = 0; i < n_; ++i)
            if (p_[i] != 0) largest = std::max(largest, std::fabs(static_cast<double>(x_[i])));
        const double unit = unit_of(largest);
        const double size = sum_of(n_, [&](std::size_t i) {
            const double w = p_[i] != 0 ? std::fabs(static_cast<double>(x_[i])) / unit : 0.0;
            return to_l1 ? w : w * w;
        });
        const double ratio = to_l1 ? l1_ / size : l2_ / std::sqrt(size);
        return {ratio, std::ilogb(y_unit_) + std::ilogb(unit_) - std::ilogb(unit)};
    }

    // The same from deviations, where those of p from its mean cannot be had from the norms.
    void by_deviations(double mean) {
        find_norm_part();
        const T* w = x_ && at_.scale > 0 ? x_ : p_;
        const Deviations<T> q(p_, w, n_);
        const auto deviation = [&](std::size_t i) { return sign_of(p_[i]) * given(i) - mean; };
        const auto term = [&](std::size_t i) { return p_[i] != 0 ? q(i) * deviation(i) : 0.0; };
        const double slope = q.spread > 0 ? sum_of(n_, term) / q.spread : 0;
        const double to_result = result_units(q, p_, w == x_, n_, at_.scale, unit_);
        if (by_target_ && q.spread > 0)
            *by_target_ = {y_unit_ * (mean - l1_ * slope / to_result / q.count), y_unit_ * l2_ * slope / to_result,
                           by_target_->by_both};
        Factor gain;
        if (w == x_ && !normal_scale() && q.spread > 0)
            gain = Factor(to_result, std::ilogb(y_unit_) + std::ilogb(unit_) - std::ilogb(q.unit));
        else if (at_.scale > 0)
            gain = quotient(y_unit_, at_.scale);
        write([&](std::size_t i) { return p_[i] != 0 ? sign_of(p_[i]) * gain(deviation(i) - slope * q(i)) : 0.0; });
    }
    const T *p_, *y_, *x_;
    T* z_;
    std::size_t n_;
    const Solved& at_;
    TargetProduct* by_target_;  // or null
    std::size_t cache_bytes_;   // 0: as large as they are
    const ResultNorms norms_;
    const double unit_ = norms_.unit, l1_ = norms_.l1, l2_ = norms_.l2;
    double y_unit_ = 1, norm_part_ = 0;
    const T* u_ = nullptr;
};

// The derivatives of the result by l1 and by l2, with the signs of p: e/d - l1 q/(d Q) and l2 q/Q on the
// support, Q = <q, q>; zero where Q is. Where one norm binds: e/d for l1, p/l2 for l2; and zero for those that do not.
template <class T> void target_gradient(const T* p, const T* x, T* by_l1, T* by_l2, std::size_t n, const Solved& at) {
    const ResultNorms norms(p, n, at);
    const double unit = norms.unit, l1 = norms.l1, l2 = norms.l2;
    if (at.active == Active::l1 || at.active == Active::none) {
        const double count = sum_of(n, [&](std::size_t i) { return p[i] != 0 ? 1.0 : 0.0; });
        for (std::size_t i = 0; i < n; ++i) {
            by_l1[i] = p[i] != 0 && at.active == Active::l1 ? static_cast<T>(sign_of(p[i]) / count) : T(0);
            by_l2[i] = T(0);
        }
        return;
    }
    if (at.active != Active::both) {
        const bool to_l1 = at.active == Active::l1_direction;
        for (std::size_t i = 0; i < n; ++i) {
            const double value = static_cast<double>(p[i]) / unit;
            by_l1[i] = to_l1 ? static_cast<T>(value / l1) : T(0);
            by_l2[i] = to_l1 ? T(0) : static_cast<T>(value / l2);
        }
        return;
    }
    const bool of_x = x && at.scale > 0;
    const Deviations<T> q(p, of_x ? x : p, n);
    const double to_result = result_units(q, p, of_x, n, at.scale, unit);
    for (std::size_t i = 0; i < n; ++i) {
        const bool inside = q.spread > 0 && to_result > 0 && p[i] != 0;
        const double s = sign_of(p[i]), share = inside ? q(i) / q.spread / to_result : 0;
        by_l1[i] = inside ? static_cast<T>(s * (1 - l1 * share) / q.count) : T(0);
        by_l2[i] = inside ? static_cast<T>(s * l2 * share) : T(0);
    }
}

}  // namespace hoyer::inline HOYER_ISA
