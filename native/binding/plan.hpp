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
#include <type_traits>
#include <utility>
#include <variant>
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

// The thresholds of the sampled search by name.
using Threshold = std::variant<std::size_t SamplingRules::*, double SamplingRules::*, bool SamplingRules::*>;
inline constexpr std::array<std::pair<std::string_view, Threshold>, 11> threshold_names{
    {{"shortest", &SamplingRules::shortest},
     {"shortest_bracket", &SamplingRules::shortest_bracket},
     {"longest_lane", &SamplingRules::longest_lane},
     {"shortest_sifted", &SamplingRules::shortest_sifted},
     {"sifted_share", &SamplingRules::sifted_share},
     {"rough", &SamplingRules::rough},
     {"buffer_bytes", &SamplingRules::buffer_bytes},
     {"standard_errors", &SamplingRules::standard_errors},
     {"fewest", &SamplingRules::fewest},
     {"rare", &SamplingRules::rare},
     {"cache_bytes", &SamplingRules::cache_bytes}}};

struct Plan {
    std::vector<double> ratio, slack, slack_low, l2;  // l1/l2, n - K as a double-double, l2
    Request request;
    bool nonnegative, check;

    Plan(const Numbers& ratio, const Numbers& slack, const Numbers& slack_low, const Numbers& l2, std::string_view norm,
         bool nonnegative, bool only_increase, bool l1_given, std::string_view solver, bool check)
        : ratio(ratio.data(), ratio.data() + ratio.size()),
          slack(slack.data(), slack.data() + slack.size()),
          slack_low(slack_low.data(), slack_low.data() + slack_low.size()),
          l2(l2.data(), l2.data() + l2.size()),
          request{rule_named(norm), named(solver, solvers, "solver"), only_increase, l1_given, {}, 0, 0},
          nonnegative(nonnegative),
          check(check) {}

    // Other thresholds than the default ones: for tests, which force every path on small vectors.
    void sample(const nb::kwargs& thresholds) {
        for (const auto [key, value] : thresholds) {
            const auto set = [&](auto member) {
                auto& threshold = request.sampling.*member;
                threshold = nb::cast<std::remove_reference_t<decltype(threshold)>>(value);
            };
            std::visit(set, named(nb::cast<std::string_view>(key), threshold_names, "threshold"));
        }
    }

    // What is asked of `rows` vectors.
    void apply(Job& job, std::size_t rows) const {
        const auto each = [rows](const std::vector<double>& numbers) -> PerRow {
            require(numbers.size() == 1 || numbers.size() == rows, "a target needs one number, or one per vector");
            return {numbers.data(), numbers.size() == 1 ? 0u : 1u};
        };
        job.ratio = each(ratio);
        job.slack = each(slack);
        job.slack_low = each(slack_low);
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
