// Registers as values: a thin layer over the compiler's own vector types, as wide as the instruction set has them.
//
// The core is compiled once per instruction set (CMakeLists.txt), each time in a namespace of its own, so the width is
// known here. Comparisons give masks, and `mask ? a : b` chooses entry by entry.
#pragma once

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include "jobs.hpp"

#ifndef HOYER_ISA
#define HOYER_ISA baseline
#endif

namespace hoyer::inline HOYER_ISA {

#if defined(__AVX512F__)
constexpr std::size_t register_bytes = 64;
#elif defined(__AVX2__)
constexpr std::size_t register_bytes = 32;
#else
constexpr std::size_t register_bytes = 16;
#endif

template <class T> using BitsOf = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;

template <class T> using CountOf = std::make_signed_t<BitsOf<T>>;

template <class T> struct Register {
    typedef T Whole __attribute__((vector_size(register_bytes)));
    typedef T Half __attribute__((vector_size(register_bytes / 2)));
};
template <class T> using Vec = typename Register<T>::Whole;
template <class T> using BitVec = Vec<BitsOf<T>>;
template <class T> constexpr std::size_t width = register_bytes / sizeof(T);

// ---- the entry as the search sees it: |x| for the signed set, x itself for the non-negative one ----

template <class T> constexpr BitsOf<T> size_mask = ~BitsOf<T>{0} >> 1;
template <class T> constexpr BitsOf<T> infinity_bits = std::bit_cast<BitsOf<T>>(std::numeric_limits<T>::infinity());

// |x| as an unsigned integer: ordered like |x|, with infinity and NaN above every finite number.
template <class T> HOYER_INLINE BitsOf<T> size_bits(T x) { return std::bit_cast<BitsOf<T>>(x) & size_mask<T>; }
template <class T> HOYER_INLINE BitVec<T> size_bits_of(Vec<T> x) { return std::bit_cast<BitVec<T>>(x) & size_mask<T>; }

template <bool Signed, class T> HOYER_INLINE T magnitude(T x) { return Signed ? std::fabs(x) : x; }
template <bool Signed, class T> HOYER_INLINE Vec<T> magnitudes(Vec<T> x) {
    if constexpr (Signed)
        return std::bit_cast<Vec<T>>(size_bits_of<T>(x));
    else
        return x;
}

// The next number of the type below or above; infinity and NaN stay where there is none.
template <class T> HOYER_INLINE T next_below(T x) {
    using Bits = BitsOf<T>;
    constexpr Bits sign = ~size_mask<T>;
    const Bits bits = std::bit_cast<Bits>(x);
    if (!(x > -std::numeric_limits<T>::infinity())) return x;
    if (x == 0) return std::bit_cast<T>(static_cast<Bits>(sign | 1));
    return std::bit_cast<T>(static_cast<Bits>(bits & sign ? bits + 1 : bits - 1));
}
template <class T> HOYER_INLINE T next_above(T x) { return -next_below(-x); }

// Floats as ordered integers, and back: bisection there halves the number of floats.
template <class T> HOYER_INLINE CountOf<T> ordered(CountOf<T> bits) {
    return bits < 0 ? std::numeric_limits<CountOf<T>>::min() - bits : bits;
}
template <class T> T halfway(T low, T high) {
    using Bits = CountOf<T>;
    const Bits a = ordered<T>(std::bit_cast<Bits>(low)), b = ordered<T>(std::bit_cast<Bits>(high));
    return std::bit_cast<T>(ordered<T>((a & b) + ((a ^ b) >> 1)));
}

// The largest number of the type that is not above a double.
template <class T> T floor_to(double value) {
    const T result = static_cast<T>(value);
    return result > value ? next_below(result) : result;
}

// ---- memory ----

template <class T> HOYER_INLINE Vec<T> splat(T value) { return value - Vec<T>{}; }

template <class T> HOYER_INLINE Vec<T> load(const T* from) {
    Vec<T> result;
    std::memcpy(&result, from, sizeof result);
    return result;
}

// The same, but never loaded again where it is used more than once: there a load costs more than a register.
template <class T> HOYER_INLINE Vec<T> load_once(const T* from) {
    Vec<T> result = load(from);
#if defined(__AVX512F__)
    __asm__("" : "+v"(result));
#elif defined(__SSE2__)
    __asm__("" : "+x"(result));
#elif defined(__aarch64__)
    __asm__("" : "+w"(result));
#endif
    return result;
}

template <class T> HOYER_INLINE void store(T* to, Vec<T> value) { std::memcpy(to, &value, sizeof value); }

// How results reach memory: by way of the caches, or past them. What nobody reads soon need not be fetched before it is
// overwritten, if whole cache lines are, one register after the other.
enum class Stores { cached, past_caches };

template <Stores How, class T> HOYER_INLINE void store(T* to, Vec<T> value) {
    if constexpr (How == Stores::cached)
        store(to, value);
    else {
#if defined(__AVX512F__)
        _mm512_stream_si512(reinterpret_cast<__m512i*>(to), (__m512i)value);
#elif defined(__AVX2__)
        _mm256_stream_si256(reinterpret_cast<__m256i*>(to), (__m256i)value);
#elif defined(__SSE2__)
        _mm_stream_si128(reinterpret_cast<__m128i*>(to), (__m128i)value);
#else
        store(to, value);
#endif
    }
}

// A register of T holds as many entries as this many registers of double.
template <class T> constexpr std::size_t doubles_per = sizeof(double) / sizeof(T);

// Where something lies, as a number: what is only fetched ahead need not be an entry of any array.
using Address = std::uintptr_t;
template <class T> HOYER_INLINE Address address_of(const T* place) { return reinterpret_cast<Address>(place); }

// Brings a cache line to the caches; nothing happens where there is none.
HOYER_INLINE void fetch(Address place) { __builtin_prefetch(reinterpret_cast<const void*>(place), 0, 2); }

// The entries of one register as doubles, and back.
template <class T> HOYER_INLINE void widen(Vec<T> from, Vec<double> (&to)[doubles_per<T>]) {
    if constexpr (sizeof(T) == 8) {
        to[0] = from;
    } else {
#if defined(__AVX512F__)
        to[0] = _mm512_cvtps_pd(_mm512_castps512_ps256(from));
        to[1] = _mm512_cvtps_pd(_mm512_extractf32x8_ps(from, 1));
#elif defined(__AVX2__)
        to[0] = _mm256_cvtps_pd(_mm256_castps256_ps128(from));
        to[1] = _mm256_cvtps_pd(_mm256_extractf128_ps(from, 1));
#else
        to[0] = __builtin_convertvector(__builtin_shufflevector(from, from, 0, 1), Vec<double>);
        to[1] = __builtin_convertvector(__builtin_shufflevector(from, from, 2, 3), Vec<double>);
#endif
    }
}
template <std::size_t... I>
HOYER_INLINE Vec<float> joined_halves(const Vec<double> (&from)[2], std::index_sequence<I...>) {
    using Half = typename Register<float>::Half;
    return __builtin_shufflevector(__builtin_convertvector(from[0], Half), __builtin_convertvector(from[1], Half),
                                   I...);
}
template <class T> HOYER_INLINE Vec<T> narrowed(const Vec<double> (&from)[doubles_per<T>]) {
    if constexpr (sizeof(T) == 8)
        return from[0];
    else
        return joined_halves(from, std::make_index_sequence<width<float>>());
}

// ---- entry by entry ----

// a * b + c, rounded once where there is an instruction for it.
#if defined(__AVX512F__)
HOYER_INLINE Vec<float> fused(Vec<float> a, Vec<float> b, Vec<float> c) { return _mm512_fmadd_ps(a, b, c); }
HOYER_INLINE Vec<double> fused(Vec<double> a, Vec<double> b, Vec<double> c) { return _mm512_fmadd_pd(a, b, c); }
#elif defined(__FMA__)
HOYER_INLINE Vec<float> fused(Vec<float> a, Vec<float> b, Vec<float> c) { return _mm256_fmadd_ps(a, b, c); }
HOYER_INLINE Vec<double> fused(Vec<double> a, Vec<double> b, Vec<double> c) { return _mm256_fmadd_pd(a, b, c); }
#else
template <class V> HOYER_INLINE V fused(V a, V b, V c) { return a * b + c; }
#endif

template <class V> HOYER_INLINE V smaller(V a, V b) { return a < b ? a : b; }
template <class V> HOYER_INLINE V larger(V a, V b) { return a > b ? a : b; }

// ---- across a register, as a tree ----

// Both halves joined, entry by entry.
template <class V, class Join, std::size_t... I>
HOYER_INLINE auto folded(V value, Join join, std::index_sequence<I...>) {
    return join(__builtin_shufflevector(value, value, I...),
                __builtin_shufflevector(value, value, (I + sizeof...(I))...));
}
// Entry i + Distance in place of entry i, around the end.
template <std::size_t Distance, class V, std::size_t... I> HOYER_INLINE V rotated(V value, std::index_sequence<I...>) {
    return __builtin_shufflevector(value, value, ((I + Distance) % sizeof...(I))...);
}
template <class V, class Join> HOYER_INLINE auto joined(V value, Join join) {
    constexpr std::size_t size = sizeof(V) / sizeof(value[0]);
    if constexpr (sizeof(V) > 16) {
        return joined(folded(value, join, std::make_index_sequence<size / 2>()), join);
    } else {
        if constexpr (size == 4) value = join(value, rotated<2>(value, std::make_index_sequence<size>()));
        return join(value, rotated<1>(value, std::make_index_sequence<size>()))[0];
    }
}
template <class T> HOYER_INLINE T sum_across(Vec<T> value) {
    return joined(value, [](auto a, auto b) { return a + b; });
}
template <class T> HOYER_INLINE T largest_across(Vec<T> value) {
    return joined(value, [](auto a, auto b) { return larger(a, b); });
}
template <class T> HOYER_INLINE T smallest_across(Vec<T> value) {
    return joined(value, [](auto a, auto b) { return smaller(a, b); });
}

// ---- over an array ----

// Calls body<Signed>(pointer to a register's entries, chain) until all are seen, chains taking turns. The last entries
// come as magnitudes, filled up with `rest`, and are not Signed any more.
template <bool Signed, std::size_t Chains, class T, class Body>
HOYER_INLINE void for_each_register(const T* x, std::size_t n, T rest, Body&& body) {
    std::size_t i = 0;
    for (; i + Chains * width<T> <= n; i += Chains * width<T>)
#pragma GCC unroll 8
        for (std::size_t c = 0; c < Chains; ++c) body.template operator()<Signed>(x + i + c * width<T>, c);
    for (; i + width<T> <= n; i += width<T>) body.template operator()<Signed>(x + i, std::size_t{0});
    if (i == n) return;
    T last[width<T>];
    std::fill_n(last, width<T>, rest);
    for (std::size_t j = 0; i < n; ++i, ++j) last[j] = magnitude<Signed>(x[i]);
    body.template operator()<false>(last, Chains - 1);
}

// Which entries of a vector count, one byte each.
using Mask = const std::uint8_t*;

// v where the bytes of a mask are not 0, and `other` elsewhere.
#if defined(__AVX512F__)
HOYER_INLINE Vec<float> kept(Vec<float> v, Mask mask, Vec<float> other) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(mask));
    return _mm512_mask_mov_ps(other, _mm_test_epi8_mask(bytes, bytes), v);
}
HOYER_INLINE Vec<double> kept(Vec<double> v, Mask mask, Vec<double> other) {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(mask));
    return _mm512_mask_mov_pd(other, static_cast<__mmask8>(_mm_test_epi8_mask(bytes, bytes)), v);
}
#elif defined(__AVX2__)
HOYER_INLINE Vec<float> kept(Vec<float> v, Mask mask, Vec<float> other) {
    const __m256i words = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(mask)));
    return _mm256_blendv_ps(v, other, _mm256_castsi256_ps(_mm256_cmpeq_epi32(words, _mm256_setzero_si256())));
}
HOYER_INLINE Vec<double> kept(Vec<double> v, Mask mask, Vec<double> other) {
    int four;
    std::memcpy(&four, mask, sizeof four);
    const __m256i words = _mm256_cvtepu8_epi64(_mm_cvtsi32_si128(four));
    return _mm256_blendv_pd(v, other, _mm256_castsi256_pd(_mm256_cmpeq_epi64(words, _mm256_setzero_si256())));
}
#else
template <class V> HOYER_INLINE V kept(V v, Mask mask, V other) {
    using T = std::remove_cvref_t<decltype(v[0])>;
    typedef std::uint8_t Bytes __attribute__((vector_size(width<T>)));
    Bytes bytes;
    std::memcpy(&bytes, mask, sizeof bytes);
    return __builtin_convertvector(bytes, Vec<CountOf<T>>) != 0 ? v : other;
}
#endif

// A register of magnitudes.
template <bool Signed, class T> HOYER_INLINE Vec<T> load_magnitudes(const T* from) {
    return magnitudes<Signed, T>(load(from));
}

// Calls body(magnitudes, chain, number of the first entry) in the same way. What fills up the last register, and what a
// mask leaves out, is `rest`; `mask` is of no interest unless Masked.
template <bool Signed, std::size_t Chains, bool Masked, class T, class Body>
HOYER_INLINE void for_each_magnitudes(const T* x, [[maybe_unused]] Mask mask, std::size_t n, T rest, Body&& body) {
    const Vec<T> others = splat(rest);
    const auto see = [&](std::size_t i, std::size_t c) __attribute__((always_inline)) {
        const Vec<T> v = load_magnitudes<Signed>(x + i);
        if constexpr (Masked)
            body(kept(v, mask + i, others), c, i);
        else
            body(v, c, i);
    };
    std::size_t i = 0;
    for (; i + Chains * width<T> <= n; i += Chains * width<T>)
#pragma GCC unroll 8
        for (std::size_t c = 0; c < Chains; ++c) see(i + c * width<T>, c);
    for (; i + width<T> <= n; i += width<T>) see(i, std::size_t{0});
    if (i == n) return;
    T last[width<T>];
    std::fill_n(last, width<T>, rest);
    for (std::size_t j = 0; i + j < n; ++j)
        if (!Masked || mask[i + j]) last[j] = magnitude<Signed>(x[i + j]);
    body(load(last), Chains - 1, i);
}

// ---- across several registers ----

// Registers with consecutive entries of one vector each become registers with one entry of all vectors each.
#if defined(__AVX512F__)

// The last step: whole quarters of registers, once the entries are in their places within quarters.
template <class V, std::size_t Width>
HOYER_INLINE void transpose_quarters(const Vec<double> (&from)[Width], V (&rows)[Width]) {
    constexpr std::size_t step = Width / 4;
#pragma GCC unroll 4
    for (std::size_t k = 0; k < step; ++k) {
        const Vec<double> a = _mm512_shuffle_f64x2(from[k], from[step + k], 0x88),
                          b = _mm512_shuffle_f64x2(from[k], from[step + k], 0xdd),
                          c = _mm512_shuffle_f64x2(from[2 * step + k], from[3 * step + k], 0x88),
                          d = _mm512_shuffle_f64x2(from[2 * step + k], from[3 * step + k], 0xdd);
        rows[k] = (V)_mm512_shuffle_f64x2(a, c, 0x88);
        rows[step + k] = (V)_mm512_shuffle_f64x2(b, d, 0x88);
        rows[2 * step + k] = (V)_mm512_shuffle_f64x2(a, c, 0xdd);
        rows[3 * step + k] = (V)_mm512_shuffle_f64x2(b, d, 0xdd);
    }
}
HOYER_INLINE void transpose(Vec<double> (&rows)[8]) {
    Vec<double> pairs[8];
#pragma GCC unroll 8
    for (std::size_t i = 0; i < 8; i += 2) {
        pairs[i] = _mm512_unpacklo_pd(rows[i], rows[i + 1]);
        pairs[i + 1] = _mm512_unpackhi_pd(rows[i], rows[i + 1]);
    }
    transpose_quarters(pairs, rows);
}
HOYER_INLINE void transpose(Vec<float> (&rows)[16]) {
    Vec<double> fours[16];
#pragma GCC unroll 4
    for (std::size_t i = 0; i < 16; i += 4) {
        const Vec<double> a = (Vec<double>)_mm512_unpacklo_ps(rows[i], rows[i + 1]),
                          b = (Vec<double>)_mm512_unpackhi_ps(rows[i], rows[i + 1]),
                          c = (Vec<double>)_mm512_unpacklo_ps(rows[i + 2], rows[i + 3]),
                          d = (Vec<double>)_mm512_unpackhi_ps(rows[i + 2], rows[i + 3]);
        fours[i] = _mm512_unpacklo_pd(a, c);
        fours[i + 1] = _mm512_unpackhi_pd(a, c);
        fours[i + 2] = _mm512_unpacklo_pd(b, d);
        fours[i + 3] = _mm512_unpackhi_pd(b, d);
    }
    transpose_quarters(fours, rows);
}

#else

// An exchange of ever larger squares.
template <std::size_t Square, class V, std::size_t... J>
HOYER_INLINE void exchange(V& a, V& b, std::index_sequence<J...>) {
    constexpr std::size_t size = sizeof...(J);
    const V upper = __builtin_shufflevector(a, b, (J & Square ? J - Square + size : J)...);
    b = __builtin_shufflevector(a, b, (J & Square ? J + size : J + Square)...);
    a = upper;
}
template <std::size_t Square = 1, class V, std::size_t Width> HOYER_INLINE void transpose(V (&rows)[Width]) {
#pragma GCC unroll 8
    for (std::size_t i = 0; i < Width; ++i)
        if (!(i & Square)) exchange<Square>(rows[i], rows[i + Square], std::make_index_sequence<Width>());
    if constexpr (2 * Square < Width) transpose<2 * Square>(rows);
}

#endif

// A double for each entry of a register of T.
template <class T> struct Wide {
    Vec<double> part[doubles_per<T>];
    double get(std::size_t lane) const { return part[lane / width<double>][lane % width<double>]; }
    static Wide from(const double* values) {
        Wide result;
        for (std::size_t j = 0; j < doubles_per<T>; ++j) result.part[j] = load(values + j * width<double>);
        return result;
    }
};

HOYER_INLINE double root(double value) { return std::sqrt(value); }
template <class V> HOYER_INLINE V root(V value) {
    V result;
    for (std::size_t i = 0; i < sizeof(V) / sizeof(value[0]); ++i) result[i] = std::sqrt(value[i]);
    return result;
}

// Joins the entries of each register; what comes of the i-th is entry i of the result.
template <class T, class Join> HOYER_INLINE Vec<T> across_each(Vec<T> (&rows)[width<T>], Join join) {
    transpose(rows);
#pragma GCC unroll 4
    for (std::size_t half = width<T> / 2; half > 0; half /= 2)
#pragma GCC unroll 8
        for (std::size_t i = 0; i < half; ++i) rows[i] = join(rows[i], rows[i + half]);
    return rows[0];
}
template <class T> HOYER_INLINE Vec<T> sum_across_each(Vec<T> (&rows)[width<T>]) {
    return across_each<T>(rows, [](auto a, auto b) { return a + b; });
}
// The same for as many registers of double as a register of T has entries.
template <class T> HOYER_INLINE Wide<T> sum_across_all(Vec<double> (&rows)[width<T>]) {
    Wide<T> sums;
    for (std::size_t j = 0; j < doubles_per<T>; ++j) {
        Vec<double> some[width<double>];
        std::copy_n(rows + j * width<double>, width<double>, some);
        sums.part[j] = sum_across_each<double>(some);
    }
    return sums;
}

// ---- the entries above a pivot, for each entry of a register by itself ----

// Distances are taken from the pivot, in the arithmetic of the data.
template <class T> struct RoughSums {
    static constexpr T infinity = std::numeric_limits<T>::infinity();
    Vec<T> sum{}, squares{};
    Vec<CountOf<T>> inside{};
    Vec<T> below = splat(-infinity), above = splat(infinity);  // the entries next to the pivot on either side

    HOYER_INLINE void see(Vec<T> v, Vec<T> pivot);
    HOYER_INLINE Vec<T> count() const { return __builtin_convertvector(inside, Vec<T>); }
    HOYER_INLINE void join(const RoughSums& other) {
        inside += other.inside;
        sum += other.sum;
        squares += other.squares;
        below = larger(below, other.below);
        above = smaller(above, other.above);
    }
};

#if defined(__AVX512F__)

template <> HOYER_INLINE void RoughSums<float>::see(Vec<float> v, Vec<float> pivot) {
    const __mmask16 in = _mm512_cmp_ps_mask(v, pivot, _CMP_GT_OQ);
    const Vec<float> t = _mm512_maskz_sub_ps(in, v, pivot);
    sum += t;
    squares = _mm512_fmadd_ps(t, t, squares);
    inside = (Vec<std::int32_t>)_mm512_mask_sub_epi32((__m512i)inside, in, (__m512i)inside, _mm512_set1_epi32(-1));
    above = _mm512_mask_min_ps(above, in, above, v);
    below = _mm512_mask_max_ps(below, _mm512_knot(in), below, v);
}
template <> HOYER_INLINE void RoughSums<double>::see(Vec<double> v, Vec<double> pivot) {
    const __mmask8 in = _mm512_cmp_pd_mask(v, pivot, _CMP_GT_OQ);
    const Vec<double> t = _mm512_maskz_sub_pd(in, v, pivot);
    sum += t;
    squares = _mm512_fmadd_pd(t, t, squares);
    inside = (Vec<std::int64_t>)_mm512_mask_sub_epi64((__m512i)inside, in, (__m512i)inside, _mm512_set1_epi64(-1));
    above = _mm512_mask_min_pd(above, in, above, v);
    below = _mm512_mask_max_pd(below, _knot_mask8(in), below, v);
}

#else

template <class T> HOYER_INLINE void RoughSums<T>::see(Vec<T> v, Vec<T> pivot) {
    const auto in = v > pivot;
    const Vec<T> none{}, t = in ? v - pivot : none;
    sum += t;
    squares += t * t;
    inside -= in;  // a mask is -1
    above = smaller(in ? v : splat(infinity), above);
    below = larger(in ? splat(-infinity) : v, below);
}

#endif

}  // namespace hoyer::inline HOYER_ISA
