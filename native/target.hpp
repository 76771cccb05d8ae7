// What is asked of one vector: the ratio of norms in double-double, and the second norm.
#pragma once

#include <cmath>
#include <cstddef>

#include "simd/sums.hpp"

namespace hoyer::inline HOYER_ISA {

// An unevaluated sum hi + lo with |lo| <= ulp(hi)/2: twice the digits of a double.
struct DoubleDouble {
    double hi = 0, lo = 0;
};

inline DoubleDouble two_sum(double a, double b) {
    const double sum = a + b, part = sum - a;
    return {sum, (a - (sum - part)) + (b - part)};
}

// A factor fraction * power with `power` a power of two: the norm of a vector near the largest float
// need not be a float itself.
struct Norm {
    double fraction = 1, power = 1;
    double value() const { return fraction * power; }
};

// The target of one vector of length n: rho = l1/l2 and room = n - K, K = rho^2.
//
// p is only Hölder-1/2 in the target where K approaches the support size from below, so every comparison with K and
// every difference d - K is taken in double-double. n - K, not K, is carried: it keeps its digits near sparseness 0.
struct Target {
    double n, rho;
    DoubleDouble room;
    double k;       // K, rounded
    bool constant;  // sparseness 0: K = n

    Target(double n, double rho, DoubleDouble room)
        : n(n), rho(rho), room(room), k((n - room.hi) - room.lo), constant(!(room.hi > 0)) {}

    // d - K, exact up to one rounding.
    double excess(double d) const { return ((d - n) + room.hi) + room.lo; }
    // Sparseness 1: K = 1.
    bool single() const { return excess(1) == 0; }
};

}  // namespace hoyer::inline HOYER_ISA
