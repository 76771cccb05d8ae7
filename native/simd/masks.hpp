// Masks: which entries of a vector count, as bytes; those entries one after the other, and back to their places.
#pragma once

#include "simd/sums.hpp"

namespace hoyer::inline HOYER_ISA {

constexpr std::size_t mask_block = 64;

// Which of 64 bytes are not zero.
HOYER_INLINE std::uint64_t mask_bits(Mask mask) {
#if defined(__AVX512F__)
    const __m512i bytes = _mm512_loadu_si512(mask);
    return _mm512_test_epi8_mask(bytes, bytes);
#elif defined(__SSE2__)
    std::uint64_t zeros = 0;
    for (int i = 0; i < 4; ++i) {
        const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(mask) + i);
        const int found = _mm_movemask_epi8(_mm_cmpeq_epi8(bytes, _mm_setzero_si128()));
        zeros |= static_cast<std::uint64_t>(static_cast<std::uint16_t>(found)) << (16 * i);
    }
    return ~zeros;
#else
    std::uint64_t bits = 0;
    for (std::size_t i = 0; i < mask_block; ++i) bits |= std::uint64_t{mask[i] != 0} << i;
    return bits;
#endif
}
// The same of fewer bytes.
HOYER_INLINE std::uint64_t mask_bits(Mask mask, std::size_t size) {
#if defined(__AVX512F__)
    const __m512i bytes = _mm512_maskz_loadu_epi8((std::uint64_t{1} << size) - 1, mask);
    return _mm512_test_epi8_mask(bytes, bytes);
#else
    std::uint8_t bytes[mask_block]{};
    std::copy_n(mask, size, bytes);
    return mask_bits(bytes);
#endif
}

inline std::size_t count_mask(Mask mask, std::size_t n) {
    std::size_t i = 0, count = 0;
    const auto add = [&](std::uint64_t bits) { count += static_cast<std::size_t>(std::popcount(bits)); };
    for (; i + mask_block <= n; i += mask_block) add(mask_bits(mask + i));
    if (i < n) add(mask_bits(mask + i, n - i));
    return count;
}

// The number of the first entry that counts; there must be one.
inline std::size_t first_of(Mask mask) {
    std::size_t i = 0;
    while (!mask[i]) ++i;
    return i;
}

// Writes the entries that count one after the other to `to`, which may be x, and returns how many. Nothing is touched
// behind its n-th entry, and no more than a register behind the last one that counts.
template <class T> std::size_t pack(const T* x, Mask mask, std::size_t n, T* to) {
    std::size_t i = 0, count = 0;
#if defined(__AVX2__)
    constexpr std::uint64_t lanes = (std::uint64_t{1} << width<T>)-1;
    // What a register overwrites has been read: no entry moves towards the end.
    const auto move = [&](std::uint64_t bits) __attribute__((always_inline)) {
        append(load(x + i), bits & lanes, to + count);
        count += static_cast<std::size_t>(std::popcount(bits & lanes));
        i += width<T>;
    };
    while (i + mask_block <= n) {
        const std::uint64_t bits = mask_bits(mask + i);
#pragma GCC unroll 16
        for (std::size_t j = 0; j < mask_block; j += width<T>) move(bits >> j);
    }
    const std::uint64_t rest = i < n ? mask_bits(mask + i, n - i) : 0;
    for (std::size_t j = 0; i + width<T> <= n; j += width<T>) move(rest >> j);
#endif
    for (; i < n; ++i) {
        to[count] = x[i];
        count += mask[i] != 0;
    }
    return count;
}

// A vector with a mask. What the search can do with both at hand it does; for the rest the entries that count are
// packed, once.
template <class T> struct MaskedVector {
    const T* x;
    Mask mask;
    std::size_t places;         // the length of both
    T* to;                      // where there is room to pack them
    const T* packed = nullptr;  // the same once they are there

    const T* pack() {
        if (!packed) {
            hoyer::pack(x, mask, places, to);
            packed = to;
        }
        return packed;
    }
};

// The first of `packed` in the places whose bits are set, one after the other, and zeros elsewhere. (A whole register
// of them may be read.)
#if defined(__AVX512F__)
template <class T> HOYER_INLINE Vec<T> expanded(std::uint64_t places, const T* packed) {
    if constexpr (sizeof(T) == 4)
        return _mm512_maskz_expand_ps(static_cast<__mmask16>(places), load(packed));
    else
        return _mm512_maskz_expand_pd(static_cast<__mmask8>(places), load(packed));
}
#else
template <class T> HOYER_INLINE Vec<T> expanded(std::uint64_t places, const T* packed) {
    Vec<T> v{};
    for (; places; places &= places - 1) v[std::countr_zero(places)] = *packed++;
    return v;
}
#endif

// The inverse, in place, with zeros between: the first `count` of `values` are spread over all n.
template <class E> void unpack(E* values, Mask mask, std::size_t n, std::size_t count) {
    std::size_t i = n;
#if defined(__AVX512F__)
    if constexpr (sizeof(E) >= 4) {
        constexpr std::uint64_t lanes = (std::uint64_t{1} << width<E>)-1;
        for (; i % width<E>; --i) {
            count -= mask[i - 1] != 0;
            values[i - 1] = mask[i - 1] ? values[count] : E(0);
        }
        const auto move = [&](std::uint64_t bits) __attribute__((always_inline)) {
            i -= width<E>;
            count -= static_cast<std::size_t>(std::popcount(bits));
            store(values + i, expanded<E>(bits, values + count));
        };
        if (const std::size_t rest = i % mask_block) {
            const std::uint64_t bits = mask_bits(mask + i - rest, rest);
            for (std::size_t j = rest; j > 0; j -= width<E>) move(bits >> (j - width<E>)&lanes);
        }
        while (i > 0) {
            const std::uint64_t bits = mask_bits(mask + i - mask_block);
#pragma GCC unroll 8
            for (std::size_t j = mask_block; j > 0; j -= width<E>) move(bits >> (j - width<E>)&lanes);
        }
        return;
    }
#endif
    for (; i-- > 0;) {
        count -= mask[i] != 0;
        // (Where none is left this is the first entry, which is overwritten last.)
        const E value = values[count];
        values[i] = mask[i] ? value : E(0);
    }
}

// Sets the entries that do not count to zero.
template <class E> void clear(E* values, Mask mask, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) values[i] = mask[i] ? values[i] : E(0);
}

// Whether the entries that count are neither NaN nor infinity.
template <class T> bool all_finite_in(const T* x, Mask mask, std::size_t n) {
    BitsOf<T> largest = 0;
    for (std::size_t i = 0; i < n; ++i) largest = std::max(largest, mask[i] ? size_bits(x[i]) : BitsOf<T>{0});
    return largest < infinity_bits<T>;
}

// Turns ascending positions among the entries that count into those in the whole vector.
inline void unpack_positions(std::vector<std::int64_t>& positions, Mask mask, std::size_t n) {
    std::size_t begin = 0, before = 0;
    std::uint64_t bits = 0;
    const auto read = [&] {
        bits = n - begin < mask_block ? mask_bits(mask + begin, n - begin) : mask_bits(mask + begin);
    };
    read();
    for (std::int64_t& position : positions) {
        const auto wanted = static_cast<std::size_t>(position);
        for (std::size_t here; before + (here = static_cast<std::size_t>(std::popcount(bits))) <= wanted;) {
            before += here;
            begin += mask_block;
            read();
        }
        for (; before < wanted; ++before) bits &= bits - 1;
        position = static_cast<std::int64_t>(begin) + std::countr_zero(bits);
    }
}

}  // namespace hoyer::inline HOYER_ISA
