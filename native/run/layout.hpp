// Vectors wherever they lie, as contiguous data.
//
// Contiguous vectors of native floats are worked on where they are; any other layout or type passes through a buffer.
// The arithmetic sees contiguous data either way, so the bits do not depend on strides.
#pragma once

#include "simd/registers.hpp"

namespace hoyer::inline HOYER_ISA {

// The type in which vectors of element type E are computed.
template <class E> struct ComputeType {
    using Type = E;
};
template <> struct ComputeType<Half> {
    using Type = float;
};
template <> struct ComputeType<BFloat16> {
    using Type = float;
};
template <class E> using Compute = typename ComputeType<E>::Type;

template <class E> constexpr double epsilon_of() {
    if constexpr (std::is_same_v<E, Half>) return 0x1p-10;
    if constexpr (std::is_same_v<E, BFloat16>) return 0x1p-7;
    return static_cast<double>(std::numeric_limits<Compute<E>>::epsilon());
}

// How many vectors that are not contiguous are copied together: as many as a register has entries, since those side by
// side share their cache lines; fewer where they would take more than a megabyte.
template <class E> std::size_t tile_size(std::size_t length) {
    constexpr std::size_t bytes = std::size_t{1} << 20;
    std::size_t vectors = width<Compute<E>>;
    while (vectors > 1 && length * vectors * sizeof(Compute<E>) > bytes) vectors /= 2;
    return vectors;
}

// Moves entries between vectors one after the other, each `n` long, and `count` of them side by side, entries `stride`
// bytes apart: squares of registers where the count allows it. to_tile: from side by side.
template <bool ToTile, class T>
void move_tile(T* tile, std::size_t n, char* beside, std::int64_t stride, std::size_t count) {
    const auto at = [&](std::size_t i) { return reinterpret_cast<T*>(beside + static_cast<std::int64_t>(i) * stride); };
    std::size_t i = 0;
    for (; count == width<T> && i + width<T> <= n; i += width<T>) {
        Vec<T> square[width<T>];
        for (std::size_t k = 0; k < width<T>; ++k) square[k] = ToTile ? load(at(i + k)) : load(tile + k * n + i);
        transpose(square);
        for (std::size_t k = 0; k < width<T>; ++k) store(ToTile ? tile + k * n + i : at(i + k), square[k]);
    }
    for (; i < n; ++i) {
        for (std::size_t k = 0; k < count; ++k) {
            if constexpr (ToTile)
                tile[k * n + i] = at(i)[k];
            else
                at(i)[k] = tile[k * n + i];
        }
    }
}

// Vectors as contiguous data of the compute type, a tile at a time.
template <class E> class Reader {
    using T = Compute<E>;

public:
    explicit Reader(const Batch& batch)
        : batch_(batch), slots_(tile_size<E>(batch.length())), buffer_(direct() ? 0 : slots_ * batch.length()) {}

    const T* read(std::size_t index) {
        if constexpr (std::is_same_v<E, T>)
            if (direct()) return reinterpret_cast<const E*>(batch_.row(index));
        return buffered(index);
    }
    // The same in the buffer, where it may be changed; only of vectors that pass through it.
    T* buffered(std::size_t index) {
        if (index - first_ >= have_) fetch_tile(index - index % slots_);
        return buffer_.data() + (index - first_) * batch_.length();
    }
    // The buffer, if it can take the results as well.
    E* shared() {
        if constexpr (std::is_same_v<E, T>)
            return direct() ? nullptr : buffer_.data();
        else
            return nullptr;
    }

private:
    bool direct() const { return std::is_same_v<E, T> && batch_.direct(); }

    void fetch_tile(std::size_t first) {
        const std::size_t n = batch_.length();
        first_ = first;
        have_ = std::min(slots_, batch_.rows() - first);
        if constexpr (std::is_same_v<E, T>) {
            if (have_ > 1 && batch_.adjacent(first, have_, sizeof(E)))
                return move_tile<true>(buffer_.data(), n, batch_.row(first), batch_.entry_stride(), have_);
        }
        for (std::size_t slot = 0; slot < have_; ++slot) batch_.gather<E>(first + slot, buffer_.data() + slot * n);
    }

    const Batch& batch_;
    std::size_t slots_, first_ = 0, have_ = 0;
    std::vector<T> buffer_;
};

// Contiguous places for results, in ascending order: in place, or a tile at a time in a buffer, which may be the
// reader's.
template <class E> class Writer {
public:
    explicit Writer(const Batch& batch, E* shared = nullptr) : batch_(batch), slots_(tile_size<E>(batch.length())) {
        if (batch.direct()) return;
        if (!shared) buffer_.resize(slots_ * batch.length());
        tile_ = shared ? shared : buffer_.data();
    }
    Writer(const Writer&) = delete;
    ~Writer() { flush(); }

    E* place(std::size_t index) {
        if (!tile_) return reinterpret_cast<E*>(batch_.row(index));
        return tile_ + index % slots_ * batch_.length();
    }
    void finish(std::size_t index) {
        if (!tile_) return;
        if (done_ == 0) first_ = index;
        ++done_;
        if (index % slots_ + 1 == slots_) flush();
    }

private:
    void flush() {
        const std::size_t n = batch_.length(), done = std::exchange(done_, 0);
        if (done == 0) return;
        E* const from = tile_ + first_ % slots_ * n;
        if constexpr (std::is_same_v<E, Compute<E>>) {
            if (done > 1 && batch_.adjacent(first_, done, sizeof(E)))
                return move_tile<false>(from, n, batch_.row(first_), batch_.entry_stride(), done);
        }
        for (std::size_t i = 0; i < done; ++i) batch_.scatter<E>(first_ + i, from + i * n);
    }

    const Batch& batch_;
    std::size_t slots_, first_ = 0, done_ = 0;
    std::vector<E> buffer_;
    E* tile_ = nullptr;
};

}  // namespace hoyer::inline HOYER_ISA
