// The paper's four solvers: Algorithm 2 with its bracket, start and steps.
#pragma once

#include "search/full.hpp"

namespace hoyer::inline HOYER_ISA {

template <class T> T midpoint(T low, T high) {
    return std::isfinite(high - low) ? low + (high - low) / 2 : low / 2 + high / 2;
}

// Negative entries are shifted away first: the search then starts at min x instead of 0. Called with ties < K < n.
template <bool Signed, class T> Support<T> Search<Signed, T>::paper(Solver solver) {
    constexpr long limit = 200;
    const T zero = std::min(seen_.min, T(0));
    // Looks that Algorithm 1 does not make (sharpening, the second largest entry) are not counted.
    const auto uncounted = [this](auto&& work) {
        const long counted = evaluations;
        auto result = work();
        evaluations = counted;
        return result;
    };
    const double middle = seen_.min * 0.5 + seen_.max * 0.5;
    const T start = seen_.min > zero ? zero : next_below(zero);
    ++evaluations;
    // The scan at alpha = 0 decides between decreasing and increasing sparseness; it must count all n entries.
    const Candidate<T> all = uncounted([&] { return sharp_candidate(start, middle); });
    if (all.alpha < zero) return uncounted([&] { return challenged(all); });

    T low = zero, high = this->look(top_, seen_.max, top_).below, alpha = midpoint(low, high);
    double reference = middle;
    // Invariant: low <= alpha* < high.
    while (true) {
        Candidate<T> s = candidate(alpha, reference);
        if (s.enough()) {
            if (s.blur() > 1024 || s.consistent()) s = uncounted([&] { return sharpened(s); });
            // Below min x no entry is a neighbour: the paper puts x_j = 0 there.
            if (std::max(s.below, zero) <= s.alpha && s.alpha < s.above)
                return uncounted([&] { return challenged(s); });
        }
        reference = s.data_mean();
        // The sign of Psi - l1/l2 is that of the exact step, which rounding does not spoil.
        const bool below = s.enough() && s.alpha > alpha;
        (below ? low : high) = alpha;
        const T next = paper_step(solver, s, low, high);
        if (evaluations >= limit || next == alpha) return climb(low, reference, low);
        alpha = next;
    }
}

// From the pivot of s to the next one: the solver's own step, or bisection where that leaves the bracket.
template <bool Signed, class T>
T Search<Signed, T>::paper_step(Solver solver, const Candidate<T>& s, T low, T high) const {
    const T centre = midpoint(low, high);
    if (solver == Solver::bisection) return centre;
    const double l1 = s.first_norm(), l2 = std::sqrt(s.second_norm_squared());
    const double psi = l1 / l2 - form_.rho, slope = (l1 * l1 / (l2 * l2) - s.count) / l2;
    double step = -psi / slope;
    if (solver == Solver::newton_sqr) {
        step = -(l1 * l1 / (l2 * l2) - form_.k) / (2 * (l1 / l2) * slope);
    } else if (solver == Solver::halley) {
        const double curvature = 3 * slope * l1 / (l2 * l2);
        const double h = 1 - psi * curvature / (2 * slope * slope);
        step /= std::max(0.5, std::min(1.5, h));
    }
    const T next = static_cast<T>(s.pivot + s.frame.length(step));
    return next >= low && next <= high ? next : centre;
}

}  // namespace hoyer::inline HOYER_ISA
