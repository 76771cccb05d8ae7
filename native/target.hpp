// What is asked of one vector: the ratio of norms in double-double, and the second norm.
#pragma once

#include <cmath>
#include <cstddef>

#include "simd.hpp"

namespace hoyer::inline HOYER_ISA {

// An unevaluated sum hi + lo with |lo| <= ulp(hi)/2: twice the digits of a double.
struct DoubleDouble {
    double hi = 0, lo = 0;
};

inline DoubleDouble two_sum(double a, double b) {
    const double sum = a + b, part = sum - a;
    return {sum, (a - (sum - part)) + (b - part)};
}

// (hi + lo)^2, to about 2^-104.
inline DoubleDouble squared(DoubleDouble a) {
    const double square = a.hi * a.hi;
    const double rest = std::fma(a.hi, a.hi, -square) + 2 * a.hi * a.lo;
    return two_sum(square, rest);
}

// A factor fraction * power with `power` a power of two: the norm of a vector near the largest float
// need not be a float itself.
struct Norm {
    double fraction = 1, power = 1;
    double value() const { return fraction * power; }
};

// The target of one vector of length n: rho = l1/l2 and K = rho^2.
//
// p is only Hölder-1/2 in the target where K approaches the support size from below, so every comparison with K and
// every difference d - K is taken in double-double. The ends of the range are flags: they need no search.
struct Target {
    double rho;        // l1 / l2
    DoubleDouble k;    // K
    bool constant;     // sparseness 0: K = n
    bool single;       // sparseness 1: K = 1

    Target(double n, DoubleDouble ratio) : rho(ratio.hi), k(squared(ratio)) {
        // Double-double squares of double-double roots are good to 2^-100 or so.
        constexpr double slack = 0x1p-90;
        constant = excess(n) <= slack * n;
        single = !constant && -excess(1) <= slack;
        if (single) rho = 1, k = {1, 0};
    }

    // d - K, exact up to one rounding.
    double excess(double d) const { return (d - k.hi) - k.lo; }
};

}  // namespace hoyer::inline HOYER_ISA
