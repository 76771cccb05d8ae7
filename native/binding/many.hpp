// Several arrays that one call projects in place: where they lie is told once.
#pragma once

#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "binding/plan.hpp"

namespace hoyer {

inline Element element_number(std::size_t number) {
    require(number < std::size(element_traits), "no such type");
    return static_cast<Element>(number);
}

class Arrays {
public:
    // Address, shape and strides (in entries), how many of the last axes form a vector, a place in ELEMENTS, and
    // whether other arrays have some of the memory as well.
    using Described = std::tuple<std::uintptr_t, std::vector<std::int64_t>, std::vector<std::int64_t>, std::size_t,
                                 std::size_t, bool>;

    explicit Arrays(const std::vector<Described>& described) {
        for (const auto& [place, shape, strides, inner, type, alone] : described) {
            require(shape.size() == strides.size() && inner <= shape.size(), "shape and strides differ");
            require(place != 0, "an array without memory");
            ArrayJob array{element_number(type), alone, {}};
            array.job.x = Batch(reinterpret_cast<void*>(place), shape.size(), inner, shape.data(), strides.data(),
                                traits_of(array.element).size, false);
            require(array.job.x.rows() > 0 && array.job.x.length() > 0, "arrays without entries");
            array.job.out = array.job.x;
            entries_ += array.job.x.rows() * array.job.x.length();
            arrays_.push_back(array);
        }
    }

    // What is asked of each array, by a plan of its own.
    std::vector<ArrayJob> jobs(const nb::list& plans) const {
        require(plans.size() == arrays_.size(), "one plan for each array");
        std::vector<ArrayJob> jobs = arrays_;
        std::size_t i = 0;
        for (const nb::handle given : plans) {
            const Plan& plan = nb::cast<const Plan&>(given);
            plan.apply(jobs[i].job);
            plan.require_fits(jobs[i].element);
            i += 1;
        }
        return jobs;
    }
    std::size_t entries() const { return entries_; }

private:
    std::vector<ArrayJob> arrays_;
    std::size_t entries_ = 0;
};

}  // namespace hoyer
