// Where to start: for a normal vector the pivot and the support's mean follow from K/n alone.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <numbers>

#include "simd/registers.hpp"

namespace hoyer::inline HOYER_ISA {

// In standard deviations from the mean: the pivot at which a normal vector has the wanted ratio of norms, and the mean
// of the entries above it.
struct Start {
    double pivot, centre;
};

// E[(z-c)+]^2 / E[(z-c)+^2] and E[z | z > c] for a standard normal z, tabulated over c.
class NormalTable {
public:
    NormalTable() {
        for (std::size_t i = 0; i < size; ++i) {
            const double c = pivot(static_cast<double>(i));
            const double density = std::exp(-0.5 * c * c) / std::sqrt(2 * std::numbers::pi);
            const double above = 0.5 * std::erfc(c / std::sqrt(2.0));
            const double first_moment = density - c * above;
            const double second_moment = (1 + c * c) * above - c * density;
            shares_[i] = first_moment * first_moment / second_moment;
            centres_[i] = density / above;
        }
    }

    // The c at which the first quantity is `share`, by linear interpolation; it falls from 1 to 0.
    Start solve(double share) const {
        const auto place =
            std::lower_bound(shares_.begin() + 1, shares_.end() - 1, share, [](double a, double b) { return a > b; });
        const std::size_t i = static_cast<std::size_t>(place - shares_.begin());
        const double weight = std::clamp((shares_[i - 1] - share) / (shares_[i - 1] - shares_[i]), 0.0, 1.0);
        return {pivot(static_cast<double>(i - 1) + weight), centres_[i - 1] + weight * (centres_[i] - centres_[i - 1])};
    }

private:
    static constexpr std::size_t size = 256;
    static constexpr double lowest = -6, highest = 8;
    static double pivot(double i) { return lowest + (highest - lowest) * i / (size - 1); }
    std::array<double, size> shares_{}, centres_{};
};

inline Start normal_start(double share) {
    static const NormalTable table;
    return table.solve(share);
}

}  // namespace hoyer::inline HOYER_ISA
