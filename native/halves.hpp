// The half types: numbers of two bytes, which are read as floats and rounded once from doubles.
//
// Part of jobs.hpp, which includes what this needs.
#pragma once

namespace hoyer {

// IEEE's, for compilers without such a type, or without the functions that convert it (compiled for WebAssembly, and
// where clang stands in for Microsoft's compiler).
class SoftwareHalf {
public:
    SoftwareHalf() = default;
    HOYER_INLINE SoftwareHalf(double value) {
        const auto bits = std::bit_cast<std::uint64_t>(value);
        const double size = std::fabs(value);
        const auto sign = static_cast<std::uint16_t>(bits >> 48 & 0x8000);
        if (!(size < 65520)) {
            bits_ = static_cast<std::uint16_t>(sign | (std::isnan(value) ? 0x7e00 : 0x7c00));
            return;
        }
        // The last bit of the half has the value 2^(exponent - 10), which is that of the last bit of a sum with this
        // power of two: the sum is rounded as the half should be, and its last bits count such units.
        const auto exponent = std::max(static_cast<std::int64_t>(bits >> 52 & 0x7ff) - 1023, std::int64_t{-14});
        const auto power = static_cast<std::uint64_t>(exponent + 42 + 1023) << 52;
        const std::uint64_t units = std::bit_cast<std::uint64_t>(size + std::bit_cast<double>(power)) - power;
        bits_ = static_cast<std::uint16_t>(sign | (units + static_cast<std::uint64_t>(exponent + 14) * 1024));
    }
    HOYER_INLINE operator float() const {
        const std::uint32_t size = bits_ & 0x7fffu, sign = (bits_ & 0x8000u) << 16;
        // By a number, as processors may be told to take subnormal floats for zero.
        if (size < 0x400)
            return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(static_cast<float>(size) * 0x1p-24f));
        // With the exponent of a float, or all of its bits for infinity and NaN.
        const float scaled = std::bit_cast<float>(size << 13) * 0x1p112f;
        const std::uint32_t found = size < 0x7c00 ? std::bit_cast<std::uint32_t>(scaled) : size << 13 | 0x7f800000u;
        return std::bit_cast<float>(sign | found);
    }
    HOYER_INLINE SoftwareHalf operator-() const {
        SoftwareHalf turned = *this;
        turned.bits_ ^= 0x8000;
        return turned;
    }

private:
    std::uint16_t bits_;
};
static_assert(sizeof(SoftwareHalf) == 2);

// GCC before 13 has the type in C++ on Arm under its older name only.
#if defined(__aarch64__) && defined(__GNUC__) && !defined(__clang__) && __GNUC__ < 13
using Half = __fp16;
#elif defined(__FLT16_MANT_DIG__) && !defined(_MSC_VER)
using Half = _Float16;
#else
using Half = SoftwareHalf;
#endif

// The upper half of a float, rounded once from double.
class BFloat16 {
public:
    BFloat16() = default;
    HOYER_INLINE BFloat16(double value) {
        const float near = static_cast<float>(value);
        std::uint32_t bits = std::bit_cast<std::uint32_t>(near);
        if (std::isnan(near)) {
            bits_ = 0x7fc0;
            return;
        }
        // What the float lacks must count when it is rounded again: towards zero, with a last bit that is no tie.
        if (std::isfinite(near) && static_cast<double>(near) != value) {
            if (std::fabs(static_cast<double>(near)) > std::fabs(value)) --bits;
            bits |= 1;
        }
        bits_ = static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    }
    HOYER_INLINE operator float() const { return std::bit_cast<float>(std::uint32_t{bits_} << 16); }
    HOYER_INLINE BFloat16 operator-() const { return -static_cast<double>(static_cast<float>(*this)); }

private:
    std::uint16_t bits_;
};
static_assert(sizeof(BFloat16) == 2);

}  // namespace hoyer
