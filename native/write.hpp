// The result of one vector: how it is formed from the entries, and the pass that writes it.
#pragma once

#include "search/moments.hpp"

namespace hoyer::inline HOYER_ISA {

// A factor fraction * power with `power` a power of two: the norm of a vector near the largest float
// need not be a float itself.
struct Norm {
    double fraction = 1, power = 1;
    double value() const { return fraction * power; }
};

// Entries of a vector by position, ascending: all that may be in its support. They live in memory of this thread.
template <class T> struct Entries {
    const std::int64_t* positions = nullptr;  // null: not known
    T* values = nullptr;                      // as many, to be read anew
    std::size_t count = 0;
};

// How the result is formed from the entries.
enum class Shape {
    interior,   // max((x - alpha)/beta, 0)
    tied,       // the first of the largest entries gets `first`, the others of them `rest`
    constant,   // every entry gets `rest`
    direction,  // x itself (or its positive part), brought to norm
    zero,       // every entry 0: norm 0 was kept or is nearest
    invalid     // NaN or infinity in x, or an impossible target
};

// Everything about the projection of one vector but the values.
template <class T> struct Solution : Record {
    Shape shape = Shape::invalid;
    T pivot{};  // entries above it are in the support
    Frame frame;
    double mean = 0, gain = 0, base = 0;  // interior: base + (t - mean) * gain, at unit norm
    double first = 0, rest = 0;           // tied, constant: values at unit norm
    Norm norm;                            // l2
    bool finite = true;
    Entries<T> entries;  // where the support is, if known

    void keep_direction(bool to_l1) { active = static_cast<double>(to_l1 ? Active::l1_direction : Active::l2); }
};

// out = x's sign on a value of the non-negative projection; zeros come out as +0.0.
template <bool Signed, class T, class Out> HOYER_INLINE Out with_sign(double value, T x) {
    // Narrowed first: what vanishes in the narrower type has no sign.
    const Out narrow = static_cast<Out>(value);
    return Signed && x < 0 && narrow > Out(0) ? -narrow : narrow;
}

// Whether the arithmetic of the data does for the result.
inline bool ordinary_write(double l2, double scale, double shift) {
    return l2 > 1e-30 && l2 < 1e30 && scale > 1e-30 && scale < 1e30 && std::fabs(shift) < 1e30;
}

// p = (x - origin) * gain + rest with `origin` alpha as a number of type T: the difference is exact near alpha and good
// to half a unit in the last place elsewhere, so the arithmetic can be that of the data.
template <class T> struct Line {
    T pivot, origin, gain, rest;
};

template <class T> Line<T> line_of(const Solution<T>& s) {
    const double l2 = s.norm.fraction;
    const T origin = static_cast<T>(s.shift);
    const double rest = (s.base + (s.frame.into(static_cast<double>(origin)) - s.mean) * s.gain) * l2;
    return {s.pivot, origin, static_cast<T>(s.gain * l2), static_cast<T>(rest)};
}

// The result of a register of entries. `Zeros`: whether entries that are zero may be in the support, which are positive
// then, whatever their sign.
template <bool Signed, bool Zeros, class V, class T> HOYER_INLINE V value_on(V v, const Line<T>& line) {
    const V none{}, w = magnitudes<Signed, T>(v), p = (w - line.origin) * line.gain + line.rest;
    const auto in = (w > splat(line.pivot)) & (p > none);
    if constexpr (!Signed) {
        return in ? p : none;
    } else if constexpr (Zeros) {
        const V value = in ? p : none;
        // 0 - 0 is +0, unlike -0.
        return v < none ? none - value : value;
    } else {
        constexpr BitsOf<T> sign = ~size_mask<T>;
        return in ? std::bit_cast<V>(std::bit_cast<BitVec<T>>(p) | (std::bit_cast<BitVec<T>>(v) & sign)) : none;
    }
}

template <bool Signed, bool Zeros, bool Masked, Stores How, class T>
HOYER_INLINE void write_line(const T* x, T* out, std::size_t n, const Line<T>& line, [[maybe_unused]] Mask mask) {
    const auto value_of = [&](Vec<T> v) __attribute__((always_inline)) { return value_on<Signed, Zeros>(v, line); };
    const Vec<T> none{};
    std::size_t i = 0;
#pragma GCC unroll 4
    for (; i + width<T> <= n; i += width<T>) {
        const Vec<T> value = value_of(load(x + i));
        if constexpr (Masked)
            store<How>(out + i, kept(value, mask + i, none));
        else
            store<How>(out + i, value);
    }
    if (i == n) return;
    T last[width<T>]{};
    std::copy_n(x + i, n - i, last);
    store(last, value_of(load(last)));
    if constexpr (Masked)
        for (std::size_t j = 0; j < n - i; ++j) last[j] = mask[i + j] ? last[j] : T(0);
    std::copy_n(last, n - i, out + i);
}

// With a mask, entries outside of it become 0.
template <bool Signed, bool Masked = false, Stores How = Stores::cached, class T>
HOYER_INLINE void write_line(const T* x, T* out, std::size_t n, const Line<T>& line, Mask mask = nullptr) {
    if (Signed && line.pivot < 0)
        write_line<Signed, true, Masked, How>(x, out, n, line, mask);
    else
        write_line<Signed, false, Masked, How>(x, out, n, line, mask);
}

// Whether that is how a result is formed.
template <class T> bool is_line(const Solution<T>& s) {
    return s.shape == Shape::interior && s.frame.plain() && s.norm.power == 1 &&
           ordinary_write(s.norm.fraction, s.scale, s.shift);
}

template <bool Signed, class T, class Out>
void write_interior(const T* x, Out* out, std::size_t n, const Solution<T>& s) {
    const double reference = s.frame.reference * s.frame.halving;
    const double halving = s.frame.halving, scale = s.frame.scale, mean = s.mean;
    const double fraction = s.norm.fraction, power = s.norm.power, gain = s.gain, base = s.base;
    const T pivot = s.pivot;
    for (std::size_t i = 0; i < n; ++i) {
        const T v = x[i], w = magnitude<Signed>(v);
        const double t = (static_cast<double>(w) * halving - reference) * scale;
        const double p = (base + (t - mean) * gain) * fraction * power;
        out[i] = with_sign<Signed, T, Out>(((w > pivot) & (p > 0)) ? p : 0.0, v);
    }
}

template <bool Signed, class T, class Out> void write_tied(const T* x, Out* out, std::size_t n, const Solution<T>& s) {
    const double first = s.first * s.norm.fraction * s.norm.power, rest = s.rest * s.norm.fraction * s.norm.power;
    bool seen = false;
    for (std::size_t i = 0; i < n; ++i) {
        const T v = x[i];
        const bool top = magnitude<Signed>(v) == s.pivot;
        out[i] = with_sign<Signed, T, Out>(top ? (seen ? rest : first) : 0.0, v);
        seen |= top;
    }
}

template <bool Signed, class T, class Out>
void write_direction(const T* x, Out* out, std::size_t n, const Solution<T>& s) {
    const double scale = s.frame.scale, gain = s.gain, fraction = s.norm.fraction, power = s.norm.power;
    // A vector whose norm does not change comes back as it is.
    const bool same = s.scale == 1;
    for (std::size_t i = 0; i < n; ++i) {
        const T v = x[i], w = magnitude<Signed>(v);
        const double p = same ? static_cast<double>(w) : static_cast<double>(w) * scale * gain * fraction * power;
        out[i] = with_sign<Signed, T, Out>(w > 0 ? p : 0.0, v);
    }
}

// Writes the projection; `out` may be `x`.
template <bool Signed, class T, class Out> void write_part(const T* x, Out* out, std::size_t n, const Solution<T>& s) {
    switch (s.shape) {
        case Shape::interior: {
            if constexpr (std::is_same_v<T, Out>)
                if (is_line(s)) return write_line<Signed>(x, out, n, line_of(s));
            return write_interior<Signed>(x, out, n, s);
        }
        case Shape::tied:
            return write_tied<Signed>(x, out, n, s);
        case Shape::direction:
            return write_direction<Signed>(x, out, n, s);
        case Shape::constant: {
            const double value = s.rest * s.norm.fraction * s.norm.power;
            for (std::size_t i = 0; i < n; ++i) out[i] = with_sign<Signed, T, Out>(value, x[i]);
            return;
        }
        case Shape::zero:
            std::fill_n(out, n, Out(0));
            return;
        case Shape::invalid:
            std::fill_n(out, n, static_cast<Out>(std::numeric_limits<float>::quiet_NaN()));
    }
}

// A result that is a line, by parts.
template <bool Signed, class T, bool Masked = false> class LineResult {
public:
    LineResult(const T* x, const Line<T>& line, Mask mask = nullptr) : x_(x), line_(line), mask_(mask) {}

    template <Stores How> void fill(std::size_t begin, std::size_t size, T* to) const {
        write_line<Signed, Masked, How>(x_ + begin, to, size, line_, Masked ? mask_ + begin : nullptr);
    }

private:
    const T* x_;
    Line<T> line_;
    Mask mask_;
};

// Any result by parts, but for ties, of which the first one is another one; it is handed to use(result).
template <bool Signed, class Out, class T, class Use> void with_result(const T* x, const Solution<T>& s, Use use) {
    if constexpr (std::is_same_v<T, Out>)
        if (is_line(s)) return use(LineResult<Signed, T>(x, line_of(s)));
    const auto part = [&](std::size_t begin, std::size_t size, Out* to) { write_part<Signed>(x + begin, to, size, s); };
    use(ByBlocks<Out, decltype(part)>(part));
}

// Hands the nonzero entries of a result to sink(position, value), ascending; fill(begin, size, to) makes a block of it.
template <class Out, class Fill, class Sink> void for_each_nonzero(std::size_t n, Fill fill, Sink sink) {
    Out values[block_size];
    for (std::size_t begin = 0; begin < n; begin += block_size) {
        const std::size_t size = std::min(block_size, n - begin);
        fill(begin, size, values);
        for (std::size_t i = 0; i < size; ++i)
            if (values[i] != Out(0)) sink(begin + i, values[i]);
    }
}

// The same for an interior result whose support is known to lie among `entries`.
template <bool Signed, class Out, class T, class Sink>
void for_each_entry(const Entries<T>& entries, const Solution<T>& s, Sink sink) {
    for_each_nonzero<Out>(
        entries.count,
        [&](std::size_t i, std::size_t size, Out* to) { write_part<Signed>(entries.values + i, to, size, s); },
        [&](std::size_t i, Out value) { sink(entries.positions[i], value); });
}

// Reads the entries anew, with their signs, before `x` may be overwritten.
template <class T> void fetch(const T* x, const Entries<T>& entries) {
    for (std::size_t i = 0; i < entries.count; ++i) entries.values[i] = x[entries.positions[i]];
}

// Nothing but zeros, by parts.
template <class Out> struct Zeros {
    template <Stores How> void fill(std::size_t, std::size_t size, Out* to) const {
        if constexpr (How == Stores::cached)
            std::fill_n(to, size, Out(0));
        else
            for (std::size_t i = 0; i < size * sizeof(Out) / sizeof(Word); i += width<Word>)
                store<How>(reinterpret_cast<Word*>(to) + i, Vec<Word>{});
    }
};

// Writes the projection of a vector of any length, by several threads where that pays; `out` may be `x`.
template <bool Signed, class T, class Out>
void write(const T* x, Out* out, std::size_t n, const Solution<T>& s, std::size_t cache_bytes = 0) {
    const bool in_place = static_cast<const void*>(x) == static_cast<const void*>(out);
    if (s.entries.positions) {
        // Zeros but for a few entries.
        fetch(x, s.entries);
        write_long(out, n, in_place, Zeros<Out>(), cache_bytes);
        for_each_entry<Signed, Out>(s.entries, s, [&](std::int64_t position, Out value) { out[position] = value; });
    } else if (s.shape == Shape::tied) {
        // The first of tied entries is the first in the vector.
        write_part<Signed>(x, out, n, s);
    } else {
        with_result<Signed, Out>(x, s, [&](const auto& result) { write_long(out, n, in_place, result, cache_bytes); });
    }
}

}  // namespace hoyer::inline HOYER_ISA
