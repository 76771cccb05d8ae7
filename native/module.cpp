// The binding: dtypes, shapes and the GIL; no mathematics.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string_view.h>

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "rows.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using Input = nb::ndarray<nb::ro, nb::device::cpu>;
using Output = nb::ndarray<nb::device::cpu>;
using Numbers = nb::ndarray<const double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Records = nb::ndarray<double, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using ReadRecords = nb::ndarray<const double, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

template <class Enum, std::size_t N>
Enum named(std::string_view name, const std::array<std::pair<std::string_view, Enum>, N>& choices, const char* what) {
    for (const auto& [key, value] : choices)
        if (key == name) return value;
    throw nb::value_error((std::string("unknown ") + what + ": " + std::string(name)).c_str());
}

hoyer::Solver solver_named(std::string_view name) {
    using enum hoyer::Solver;
    static constexpr std::array<std::pair<std::string_view, hoyer::Solver>, 5> choices{
        {{"auto", automatic}, {"bisection", bisection}, {"newton", newton}, {"newton_sqr", newton_sqr}, {"halley", halley}}};
    return named(name, choices, "solver");
}

hoyer::NormRule rule_named(std::string_view name) {
    using enum hoyer::NormRule;
    static constexpr std::array<std::pair<std::string_view, hoyer::NormRule>, 3> choices{
        {{"fixed", fixed}, {"keep", keep}, {"nearest", nearest}}};
    return named(name, choices, "norm rule");
}

hoyer::Check check_named(std::string_view name) {
    using enum hoyer::Check;
    static constexpr std::array<std::pair<std::string_view, hoyer::Check>, 3> choices{
        {{"none", none}, {"each", each}, {"all_first", all_first}}};
    return named(name, choices, "check");
}

bool no_signal_waits() {
    nb::gil_scoped_acquire gil;
    return PyErr_CheckSignals() == 0;
}

// Calls work.operator()<E>() for the element type at hand, without the GIL; raises what a signal handler raised.
template <class Work> std::int64_t dispatch(nb::dlpack::dtype type, Work&& work) {
    std::int64_t result;
    {
        nb::gil_scoped_release released;
        if (type == nb::dtype<double>())
            result = work.template operator()<double>();
        else if (type == nb::dtype<float>())
            result = work.template operator()<float>();
        else if (type.code == static_cast<std::uint8_t>(nb::dlpack::dtype_code::Float) && type.bits == 16)
            result = work.template operator()<_Float16>();
        else
            throw nb::type_error("expected float16, float32 or float64");
    }
    if (result == hoyer::interrupted) throw nb::python_error();
    return result;
}

template <class Array> hoyer::Batch batch(const Array& a, std::size_t inner, bool swapped = false) {
    return {const_cast<void*>(static_cast<const void*>(a.data())), a.ndim(), inner, a.shape_ptr(), a.stride_ptr(),
            a.itemsize(), swapped};
}

void require(bool condition, const char* message) {
    if (!condition) throw nb::value_error(message);
}

hoyer::PerRow per_row(const Numbers& numbers, std::size_t rows) {
    require(numbers.size() == 1 || numbers.size() == rows, "a target needs one number, or one per vector");
    return {numbers.data(), numbers.size() == 1 ? 0u : 1u};
}

std::int64_t project(const Input& x, const Output& out, std::size_t inner, bool x_swapped, bool out_swapped,
                     const Numbers& ratio, const Numbers& ratio_low, const Numbers& l2, std::string_view norm,
                     bool nonnegative, bool only_increase, bool l1_given, std::string_view solver,
                     std::string_view check, std::optional<Records> records) {
    require(x.dtype() == out.dtype(), "x and out differ in dtype");
    hoyer::Job job{batch(x, inner, x_swapped), batch(out, inner, out_swapped), {}, {}, {}, {}, check_named(check)};
    const std::size_t rows = job.x.rows();
    require(rows == job.out.rows() && job.x.length() == job.out.length(), "x and out differ in shape");
    require(job.x.length() > 0, "vectors without entries");
    if (rows == 0) return hoyer::all_good;
    job.ratio = per_row(ratio, rows);
    job.ratio_low = per_row(ratio_low, rows);
    job.l2 = per_row(l2, rows);
    job.request = {rule_named(norm), solver_named(solver), only_increase, l1_given};
    if (records) {
        require(records->shape(0) == rows && records->shape(1) == hoyer::record_size, "records of another shape");
        job.records = records->data();
    }
    return dispatch(x.dtype(), [&]<class E>() {
        return nonnegative ? hoyer::project_rows<E, false>(job, no_signal_waits)
                           : hoyer::project_rows<E, true>(job, no_signal_waits);
    });
}

void gradient_product(const Input& value, const Input& y, const std::optional<Input>& x, const Output& out,
                      std::size_t inner, const ReadRecords& records, std::string_view norm, bool nonnegative,
                      bool reverse) {
    hoyer::GradientJob job;
    job.value = batch(value, inner);
    job.y = batch(y, inner);
    job.out = batch(out, inner);
    job.norm = rule_named(norm);
    require(value.dtype() == y.dtype() && y.dtype() == out.dtype(), "arrays differ in dtype");
    require(job.value.rows() == job.y.rows() && job.y.rows() == job.out.rows(), "arrays differ in shape");
    require(job.value.length() == job.y.length() && job.y.length() == job.out.length(), "arrays differ in shape");
    if (job.norm == hoyer::NormRule::keep) {
        require(x && x->dtype() == value.dtype(), "the rule 'keep' needs x");
        job.x = batch(*x, inner);
        require(job.x.rows() == job.value.rows() && job.x.length() == job.value.length(), "arrays differ in shape");
    }
    require(records.shape(0) == job.value.rows() && records.shape(1) == hoyer::record_size, "records of another shape");
    job.records = records.data();
    job.mode = reverse ? hoyer::Mode::reverse : hoyer::Mode::forward;
    job.nonnegative = nonnegative;
    if (job.value.rows() == 0) return;
    dispatch(value.dtype(), [&]<class E>() { return hoyer::gradient_rows<E>(job, no_signal_waits); });
}

void target_gradient(const Input& value, const Output& by_l1, const Output& by_l2, std::size_t inner,
                     const ReadRecords& records) {
    hoyer::GradientJob job;
    job.value = batch(value, inner);
    job.out = batch(by_l1, inner);
    job.second = batch(by_l2, inner);
    require(value.dtype() == by_l1.dtype() && value.dtype() == by_l2.dtype(), "arrays differ in dtype");
    for (const hoyer::Batch* other : {&job.out, &job.second})
        require(job.value.rows() == other->rows() && job.value.length() == other->length(), "arrays differ in shape");
    require(records.shape(0) == job.value.rows() && records.shape(1) == hoyer::record_size, "records of another shape");
    job.records = records.data();
    job.by_target = true;
    if (job.value.rows() == 0) return;
    dispatch(value.dtype(), [&]<class E>() { return hoyer::gradient_rows<E>(job, no_signal_waits); });
}

void sparseness(const Input& x, std::size_t inner, const nb::ndarray<double, nb::ndim<1>, nb::c_contig, nb::device::cpu>& out) {
    const hoyer::Batch vectors = batch(x, inner);
    require(out.size() == vectors.rows(), "out needs one number per vector");
    if (vectors.rows() == 0) return;
    dispatch(x.dtype(), [&]<class E>() { return hoyer::sparseness_rows<E>(vectors, out.data(), no_signal_waits); });
}

}  // namespace

NB_MODULE(_core, m) {
    m.doc() = "The compiled core of hoyer: projections, their derivatives and sparseness, for batches of vectors.";
    nb::list fields;
    for (const char* field : hoyer::record_fields) fields.append(field);
    m.attr("RECORD_FIELDS") = nb::tuple(fields);
    m.def("project", &project, "x"_a, "out"_a.noconvert(), "inner"_a, "x_swapped"_a, "out_swapped"_a, "ratio"_a,
          "ratio_low"_a, "l2"_a, "norm"_a, "nonnegative"_a, "only_increase"_a, "l1_given"_a, "solver"_a, "check"_a,
          "records"_a.noconvert().none(),
          "Project every vector (the last `inner` axes of x) into out. Returns -1, or the number of the first vector "
          "with NaN or infinity.");
    m.def("gradient_product", &gradient_product, "value"_a, "y"_a, "x"_a.none(), "out"_a.noconvert(), "inner"_a,
          "records"_a, "norm"_a, "nonnegative"_a, "reverse"_a,
          "Algorithm 3 for every vector: the Jacobian (or its transpose) times y.");
    m.def("target_gradient", &target_gradient, "value"_a, "by_l1"_a.noconvert(), "by_l2"_a.noconvert(), "inner"_a,
          "records"_a, "The derivatives of every projection by its target norms.");
    m.def("sparseness", &sparseness, "x"_a, "inner"_a, "out"_a.noconvert(), "sigma(x) of every vector.");
}
