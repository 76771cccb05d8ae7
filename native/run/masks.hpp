// The masks of vectors, wherever they lie, as contiguous bytes.
#pragma once

#include "run/layout.hpp"

namespace hoyer::inline HOYER_ISA {

// As a Reader has vectors.
class Masks {
public:
    explicit Masks(const Batch& where) : where_(where), slots_(slots_for(where.length())) {
        if (!where.direct()) tile_.resize(slots_ * where.length());
    }
    // How many share a tile: as many as a cache line has bytes, and no more than take a megabyte.
    static std::size_t slots_for(std::size_t length) {
        constexpr std::size_t bytes = std::size_t{1} << 20;
        std::size_t vectors = 64;
        while (vectors > 1 && length * vectors > bytes) vectors /= 2;
        return vectors;
    }

    Mask read(std::size_t row) {
        if (where_.direct()) return reinterpret_cast<Mask>(where_.row(row));
        const std::size_t n = where_.length();
        if (row - first_ >= have_) fetch_tile(row - row % slots_);
        return tile_.data() + (row - first_) * n;
    }

private:
    void fetch_tile(std::size_t first) {
        const std::size_t n = where_.length();
        first_ = first;
        have_ = std::min(slots_, where_.rows() - first);
        if (have_ > 1 && where_.adjacent(first, have_, 1))
            return move_bytes(n, where_.row(first), where_.entry_stride());
        for (std::size_t slot = 0; slot < have_; ++slot)
            where_.gather<std::uint8_t>(first + slot, tile_.data() + slot * n);
    }
    void move_bytes(std::size_t n, const char* beside, std::int64_t stride) {
        for (std::size_t i = 0; i < n; ++i, beside += stride)
            for (std::size_t k = 0; k < have_; ++k) tile_[k * n + i] = static_cast<std::uint8_t>(beside[k]);
    }

    const Batch& where_;
    std::size_t slots_, first_ = 0, have_ = 0;
    std::vector<std::uint8_t> tile_;
};

}  // namespace hoyer::inline HOYER_ISA
