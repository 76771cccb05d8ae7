// What is to be known of a part of a vector before its histograms: the ends of its keys, and ties at the upper one.
#pragma once

#include "parts/histogram.hpp"

namespace hoyer::inline HOYER_ISA {

// The two largest keys so far, and where the largest one came first.
struct LargestKeys {
    static constexpr std::int64_t none = std::numeric_limits<std::int64_t>::min();
    std::int64_t top = none, below = none, place = none, ties = 0;

    void see(std::int64_t key, std::int64_t at) {
        if (key < below) return;
        if (key > top) {
            below = std::exchange(top, key);
            place = at;
            ties = 1;
        } else if (key == top) {
            ++ties;
        } else {
            below = key;
        }
    }
};

// Writes the fields of `Outline` to job.out.
template <class E, bool Signed> std::int64_t outline(const HistogramJob& job, bool (*go_on)()) {
    LargestKeys largest;
    Outline found;
    const auto see = [&](const Compute<E>* x, std::size_t n, Mask mask, std::size_t begin) {
        std::int64_t high = LargestKeys::none, low = std::numeric_limits<std::int64_t>::max();
        for (std::size_t i = 0; i < n; ++i) {
            const std::int64_t key = key_of<Signed>(x[i]);
            const bool counts = !mask || mask[i];
            high = std::max(high, counts ? key : LargestKeys::none);
            low = std::min(low, counts ? key : found.bottom);
            found.not_finite += counts && !(size_bits(x[i]) < infinity_bits<Compute<E>>);
            found.zeros += counts && key == 0;
        }
        found.bottom = std::min(found.bottom, low);
        // Most blocks have nothing that is as large as what others had.
        if (high <= largest.below) return;
        for (std::size_t i = 0; i < n; ++i)
            if (!mask || mask[i]) largest.see(key_of<Signed>(x[i]), static_cast<std::int64_t>(begin + i));
    };
    const bool done = for_each_block<E>(job, go_on, see);
    found.top = largest.top;
    found.below = largest.below;
    found.place = largest.place;
    found.ties = largest.ties;
    std::memcpy(job.out, &found, sizeof(found));
    return done ? all_good : interrupted;
}

}  // namespace hoyer::inline HOYER_ISA
