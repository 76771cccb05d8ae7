// Numbers with twice the digits of a double, and sums that lose nothing.
#pragma once

#include <cmath>

#include "simd/registers.hpp"

namespace hoyer::inline HOYER_ISA {

// An unevaluated sum hi + lo with |lo| <= ulp(hi)/2: twice the digits of a double.
struct DoubleDouble {
    double hi = 0, lo = 0;
};

inline DoubleDouble two_sum(double a, double b) {
    const double sum = a + b, part = sum - a;
    return {sum, (a - (sum - part)) + (b - part)};
}

// A running sum whose rounding errors are added up beside it.
struct Accumulator {
    double sum = 0, carry = 0;
    HOYER_INLINE void add(double term) {
        const DoubleDouble s = two_sum(sum, term);
        sum = s.hi;
        carry += s.lo;
    }
    void add(const Accumulator& other) { add(other.value()); }
    // An overflowed sum has no meaningful carry.
    HOYER_INLINE double value() const { return std::isfinite(sum) ? sum + carry : sum; }
};

}  // namespace hoyer::inline HOYER_ISA
