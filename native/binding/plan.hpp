// What a call asks for, in the core's own terms: made once, used for as many arrays as one likes.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <array>
#include <cstddef>
#include <limits>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "jobs.hpp"

namespace hoyer {

namespace nb = nanobind;

using Numbers = nb::ndarray<const double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

template <class Enum, std::size_t N>
Enum named(std::string_view name, const std::array<std::pair<std::string_view, Enum>, N>& choices, const char* what) {
    for (const auto& [key, value] : choices)
        if (key == name) return value;
    throw nb::value_error((std::string("unknown ") + what + ": " + std::string(name)).c_str());
}

inline constexpr std::array<std::pair<std::string_view, Solver>, 5> solvers{{{"auto", Solver::automatic},
                                                                             {"bisection", Solver::bisection},
                                                                             {"newton", Solver::newton},
                                                                             {"newton_sqr", Solver::newton_sqr},
                                                                             {"halley", Solver::halley}}};

inline NormRule rule_named(std::string_view name) {
    using enum NormRule;
    static constexpr std::array<std::pair<std::string_view, NormRule>, 3> choices{
        {{"fixed", fixed}, {"keep", keep}, {"nearest", nearest}}};
    return named(name, choices, "norm rule");
}

inline void require(bool condition, const char* message) {
    if (!condition) throw nb::value_error(message);
}

// In the order of Element.
inline constexpr std::array<const char*, 4> element_names{"float16", "float32", "float64", "bfloat16"};

struct Plan {
    std::vector<double> ratio, room, room_low, l2;
    Request request;
    bool nonnegative, check;

    Plan(const Numbers& ratio, const Numbers& room, const Numbers& room_low, const Numbers& l2, std::string_view norm,
         bool nonnegative, bool only_increase, bool l1_given, std::string_view solver, bool check)
        : ratio(ratio.data(), ratio.data() + ratio.size()),
          room(room.data(), room.data() + room.size()),
          room_low(room_low.data(), room_low.data() + room_low.size()),
          l2(l2.data(), l2.data() + l2.size()),
          request{rule_named(norm), named(solver, solvers, "solver"), only_increase, l1_given, {}, 0, 0},
          nonnegative(nonnegative),
          check(check) {}

    // Other thresholds than the default ones: for tests, which force every path on small vectors.
    void sample(const nb::kwargs& thresholds) {
        SamplingRules& rules = request.sampling;
        for (const auto [key, value] : thresholds) {
            const std::string_view name = nb::cast<std::string_view>(key);
            if (name == "shortest")
                rules.shortest = nb::cast<std::size_t>(value);
            else if (name == "shortest_bracket")
                rules.shortest_bracket = nb::cast<std::size_t>(value);
            else if (name == "longest_lane")
                rules.longest_lane = nb::cast<std::size_t>(value);
            else if (name == "shortest_sifted")
                rules.shortest_sifted = nb::cast<std::size_t>(value);
            else if (name == "sifted_share")
                rules.sifted_share = nb::cast<double>(value);
            else if (name == "rough")
                rules.rough = nb::cast<bool>(value);
            else if (name == "buffer_bytes")
                rules.buffer_bytes = nb::cast<std::size_t>(value);
            else if (name == "standard_errors")
                rules.standard_errors = nb::cast<double>(value);
            else if (name == "fewest")
                rules.fewest = nb::cast<double>(value);
            else if (name == "rare")
                rules.rare = nb::cast<double>(value);
            else if (name == "cache_bytes")
                rules.cache_bytes = nb::cast<std::size_t>(value);
            else
                throw nb::type_error("no such threshold");
        }
    }

    // What is asked of `rows` vectors.
    void apply(Job& job, std::size_t rows) const {
        const auto each = [rows](const std::vector<double>& numbers) -> PerRow {
            require(numbers.size() == 1 || numbers.size() == rows, "a target needs one number, or one per vector");
            return {numbers.data(), numbers.size() == 1 ? 0u : 1u};
        };
        job.ratio = each(ratio);
        job.room = each(room);
        job.room_low = each(room_low);
        job.l2 = each(l2);
        job.request = request;
        job.nonnegative = nonnegative;
        job.check = check ? Check::each : Check::none;
    }

    // A norm beyond the largest number of the type, which cannot be had.
    std::optional<double> unreachable(Element element) const {
        if (element == Element::float64 || !check || request.norm != NormRule::fixed) return {};
        for (const double norm : l2)
            if (norm > largest(element)) return norm;
        return {};
    }
    void require_fits(Element element) const {
        const std::optional<double> norm = unreachable(element);
        if (!norm) return;
        std::ostringstream message;
        message << "a target with l2=" << *norm << " does not fit " << element_names[static_cast<std::size_t>(element)]
                << ", whose largest number is " << largest(element) << ": convert x to a wider type first";
        throw nb::value_error(message.str().c_str());
    }

private:
    static double largest(Element element) {
        switch (element) {
            case Element::float16:
                return 65504.0;
            case Element::bfloat16:
                return 0x1.fep127;
            default:
                return std::numeric_limits<float>::max();
        }
    }
};

}  // namespace hoyer
