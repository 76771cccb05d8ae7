// What a call asks for, in the core's own terms: made once, used for as many arrays as one likes.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <initializer_list>
#include <sstream>
#include <string>
#include <string_view>
#include <variant>

#include "jobs.hpp"

namespace hoyer {

namespace nb = nanobind;

using Numbers = nb::ndarray<const double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

template <class Choice>
Choice named(std::string_view name, const char* what,
             std::initializer_list<std::pair<std::string_view, Choice>> choices) {
    for (const auto& [key, choice] : choices)
        if (key == name) return choice;
    throw nb::value_error((std::string("unknown ") + what + ": " + std::string(name)).c_str());
}
inline Solver solver_named(std::string_view name) {
    using enum Solver;
    return named<Solver>(name, "solver",
                         {{"auto", automatic},
                          {"bisection", bisection},
                          {"newton", newton},
                          {"newton_sqr", newton_sqr},
                          {"halley", halley}});
}
inline NormRule rule_named(std::string_view name) {
    const auto* const place = std::find(std::begin(rule_names), std::end(rule_names), name);
    if (place == std::end(rule_names)) throw nb::value_error(("unknown norm rule: " + std::string(name)).c_str());
    return static_cast<NormRule>(place - std::begin(rule_names));
}

inline void require(bool condition, const char* message) {
    if (!condition) throw nb::value_error(message);
}

// The thresholds of the sampled search by name.
using Threshold = std::variant<std::size_t SamplingRules::*, double SamplingRules::*, bool SamplingRules::*>;
inline Threshold threshold_named(std::string_view name) {
    using R = SamplingRules;
    return named<Threshold>(name, "threshold",
                            {{"shortest", &R::shortest},
                             {"shortest_bracket", &R::shortest_bracket},
                             {"longest_lane", &R::longest_lane},
                             {"shortest_sifted", &R::shortest_sifted},
                             {"sifted_share", &R::sifted_share},
                             {"rough", &R::rough},
                             {"buffer_bytes", &R::buffer_bytes},
                             {"standard_errors", &R::standard_errors},
                             {"fewest", &R::fewest},
                             {"rare", &R::rare},
                             {"cache_bytes", &R::cache_bytes}});
}

struct Plan {
    std::vector<double> ratio, slack, slack_low, l2;  // l1/l2, n - K as a double-double, l2
    Request request;
    bool nonnegative, check;
    bool by_length;   // the numbers are for vectors of each length, from 0 on
    bool both_norms;  // they were given, rather than a sparseness

    Plan(const Numbers& ratio, const Numbers& slack, const Numbers& slack_low, const Numbers& l2, std::string_view norm,
         bool nonnegative, bool only_increase, bool l1_given, bool at_most, std::string_view solver, bool check,
         bool by_length, bool both_norms)
        : ratio(ratio.data(), ratio.data() + ratio.size()),
          slack(slack.data(), slack.data() + slack.size()),
          slack_low(slack_low.data(), slack_low.data() + slack_low.size()),
          l2(l2.data(), l2.data() + l2.size()),
          request{rule_named(norm), solver_named(solver), only_increase, l1_given, at_most, {}, 0, 0},
          nonnegative(nonnegative),
          check(check),
          by_length(by_length),
          both_norms(both_norms) {}

    // Other thresholds than the default ones: for tests, which force every path on small vectors.
    void sample(const nb::kwargs& thresholds) {
        for (const auto [key, value] : thresholds) {
            const auto set = [&](auto member) {
                auto& threshold = request.sampling.*member;
                threshold = nb::cast<std::remove_reference_t<decltype(threshold)>>(value);
            };
            std::visit(set, threshold_named(nb::cast<std::string_view>(key)));
        }
    }

    // What is asked of the vectors of a job.
    void apply(Job& job) const {
        const std::size_t wanted = by_length ? job.x.length() + 1 : job.x.rows();
        require(!by_length || job.lengths, "targets by length are for vectors with masks");
        const std::int64_t* const lengths = by_length ? job.lengths : nullptr;
        job.ratio = each(ratio, wanted, lengths);
        job.slack = each(slack, wanted, lengths);
        job.slack_low = each(slack_low, wanted, lengths);
        job.l2 = each(l2, wanted, lengths);
        job.request = request;
        job.nonnegative = nonnegative;
        job.check = check ? Check::each : Check::none;
    }

    // What was asked of results whose derivatives are wanted.
    void apply(GradientJob& job) const {
        require(!by_length, "targets by length are for projections");
        job.ratio = each(ratio, job.value.rows(), nullptr);
        job.l2 = each(l2, job.value.rows(), nullptr);
        job.norm = request.norm;
        job.nonnegative = nonnegative;
        job.both_norms = both_norms;
    }

    // Refuses a norm beyond the largest number of the type, which cannot be had.
    void require_fits(Element element) const {
        const auto& [name, size, largest] = traits_of(element);
        const bool l1_alone = request.norm == NormRule::free;
        if (!check || request.at_most || (!l1_alone && request.norm != NormRule::fixed)) return;
        const std::vector<double>& norms = l1_alone ? ratio : l2;
        // A vector without entries has no norm.
        std::size_t i = by_length ? 1 : 0;
        // An average entry, where l1 is given alone: n is the slack then.
        while (i < norms.size() && !(norms[i] / (l1_alone ? slack[i] : 1) > largest)) i += 1;
        if (i == norms.size()) return;
        std::ostringstream message;
        message << "a target with " << (l1_alone ? "l1=" : "l2=") << norms[i] << " does not fit " << name
                << ", whose largest number is " << largest << ": convert x to a wider type first";
        throw nb::value_error(message.str().c_str());
    }

private:
    static PerRow each(const std::vector<double>& numbers, std::size_t wanted, const std::int64_t* lengths) {
        require(numbers.size() == 1 || numbers.size() == wanted,
                "a target needs one number, or one per vector or length");
        return {numbers.data(), numbers.size() == 1 ? 0u : 1u, lengths};
    }
};

}  // namespace hoyer
