// The support of a long result that was noted while it was read: what comes of it need not read all of it again.
#pragma once

#include "scratch.hpp"
#include "simd/masks.hpp"
#include "simd/stream.hpp"

namespace hoyer::inline HOYER_ISA {

// Which entries of p are in the support, as bits, and those of p and y there, one after the other, part by part. Of a
// part that has more than there is room for nothing is noted.
template <class T> class NotedSupport {
public:
    // Nothing is noted.
    NotedSupport() = default;
    // Noting pays only if p and y do not stay in the caches, of `cache_bytes` (0: those of this machine), until the
    // result is written.
    NotedSupport(std::size_t n, std::size_t cache_bytes) {
        if (2 * n * sizeof(T) <= (cache_bytes ? cache_bytes : last_level_cache()) || n > longest) return;
        const std::size_t parts = (n + part_size - 1) / part_size;
        room_ = std::min(part_size / 16, most_bytes / (2 * sizeof(T)) / parts);
        stride_ = room_ + append_margin;
        sizes_.assign(parts, 0);
        // Fresh pages would cost more than noting saves.
        bits_ = scratch<std::uint64_t, Use::noted>(parts * (part_size / mask_block) + 1);
        p_ = scratch<T, Use::noted>(2 * parts * stride_);
        y_ = p_ + parts * stride_;
    }

    // Notes a block, of which `count` entries are in the support; blocks of a part come in their order.
    void note(std::size_t begin, const T* p, const T* y, std::size_t n, std::size_t count) {
        const std::size_t part = begin / part_size;
        if (sizes_.empty() || sizes_[part] == left_out) return;
        // A dense block is seldom the only one.
        if (sizes_[part] + count > room_ || 4 * count > sum_block<T>) {
            sizes_[part] = left_out;
            return;
        }
        std::uint64_t* bits = bits_ + begin / mask_block;
        if (count == 0) {
            std::fill_n(bits, (n + mask_block - 1) / mask_block, 0);
            return;
        }
        const std::size_t first = part * stride_ + sizes_[part];
        T *to_p = p_ + first, *to_y = y_ + first;
        for (std::size_t i = 0; i < n; i += mask_block) {
            T values[mask_block], given[mask_block];
            const bool whole = i + mask_block <= n;
            if (!whole) {
                std::fill(std::copy(p + i, p + n, values), values + mask_block, T(0));
                std::fill(std::copy(y + i, y + n, given), given + mask_block, T(0));
            }
            const T *from_p = whole ? p + i : values, *from_y = whole ? y + i : given;
            std::uint64_t word = 0;
            for (std::size_t j = 0; j < mask_block; j += width<T>) {
                const Vec<T> v = load(from_p + j);
                const std::uint64_t chosen = above_bits(v != Vec<T>{} ? splat(T(1)) : Vec<T>{}, Vec<T>{});
                append(v, chosen, to_p);
                append(load(from_y + j), chosen, to_y);
                to_p += std::popcount(chosen);
                to_y += std::popcount(chosen);
                word |= chosen << j;
            }
            *bits++ = word;
        }
        sizes_[part] += count;
    }

    bool has(std::size_t part) const { return !sizes_.empty() && sizes_[part] != left_out; }

    // Has work_on(p, y, size) put results in the place of the entries of y.
    template <class Work> void replace(Work work_on) {
        auto work = [&](std::size_t part, bool) {
            if (has(part)) work_on(p_ + part * stride_, y_ + part * stride_, sizes_[part]);
        };
        for_each_task(sizes_.size(), work);
    }

    // Writes those results to their places, and zeros elsewhere, within a part.
    template <Stores How> void fill(std::size_t begin, std::size_t n, T* to) const {
        constexpr std::uint64_t lanes = ~std::uint64_t{0} >> (64 - width<T>);
        const std::size_t part = begin / part_size, shift = begin % mask_block;
        const T* values = y_ + part * stride_;
        const std::uint64_t* bits = bits_ + part * (part_size / mask_block);
        for (; bits < bits_ + begin / mask_block; ++bits) values += std::popcount(*bits);
        values += std::popcount(*bits & ((std::uint64_t{1} << shift) - 1));
        for (std::size_t i = 0; i < n; ++bits) {
            std::uint64_t word = *bits >> shift;
            if (shift) word |= bits[1] << (mask_block - shift);
            for (std::size_t j = 0; j < mask_block && i < n; j += width<T>, word >>= width<T>) {
                const Vec<T> value = expanded<T>(word & lanes, values);
                if (i + width<T> <= n)
                    store<How>(to + i, value);
                else
                    std::memcpy(to + i, &value, (n - i) * sizeof(T));
                values += std::popcount(word & lanes);
                i += width<T>;
            }
        }
    }

private:
    static_assert(part_size % sum_block<T> == 0 && sum_block<T> % mask_block == 0 && width<T> <= append_margin);
    static constexpr std::size_t left_out = ~std::size_t{0};
    // What is noted stays with the thread: 32 MiB of entries and 16 MiB of bits at most.
    static constexpr std::size_t most_bytes = std::size_t{1} << 25, longest = std::size_t{1} << 27;
    std::size_t room_ = 0, stride_ = 0;
    std::uint64_t* bits_ = nullptr;
    T *p_ = nullptr, *y_ = nullptr;
    std::vector<std::size_t> sizes_;
};

}  // namespace hoyer::inline HOYER_ISA
