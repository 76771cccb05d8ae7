// The binding: dtypes, shapes and the GIL; no mathematics.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <stdexcept>

#include "binding/call.hpp"
#include "binding/handlers.hpp"
#include "binding/many.hpp"
#include "run/dispatch.hpp"
#include "run/groups.hpp"
#include "run/machine.hpp"
#include "run/pool.hpp"

namespace hoyer {
namespace {

using namespace nb::literals;
using Input = nb::ndarray<nb::ro, nb::device::cpu>;
using Output = nb::ndarray<nb::device::cpu>;
using Records = nb::ndarray<double, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using ReadRecords = nb::ndarray<const double, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

using ReadNumbers = nb::ndarray<const double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Lengths = nb::ndarray<const std::int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

bool no_signal_waits() {
    nb::gil_scoped_acquire gil;
    return PyErr_CheckSignals() == 0;
}

Element element_of(nb::dlpack::dtype type) {
    if (type == nb::dtype<double>()) return Element::float64;
    if (type == nb::dtype<float>()) return Element::float32;
    if (type.code == static_cast<std::uint8_t>(nb::dlpack::dtype_code::Float) && type.bits == 16)
        return Element::float16;
    if (type.code == static_cast<std::uint8_t>(nb::dlpack::dtype_code::Bfloat) && type.bits == 16)
        return Element::bfloat16;
    throw nb::type_error("expected float16, bfloat16, float32 or float64");
}

// The best core this processor runs; HOYER_ISA in the environment can ask for a lesser one. None if there is no such.
const Core* choose_core() {
    const char* given = std::getenv("HOYER_ISA");
    const std::string_view wanted = given ? given : "";
    for (const Core* core : available_cores())
        if (wanted.empty() || core->name == wanted) return core;
    return nullptr;
}

const Core& core() {
    static const Core* chosen = choose_core();
    if (!chosen) throw std::runtime_error("HOYER_ISA names no instruction set of this processor");
    return *chosen;
}

const char* name_of(const char* name) { return name; }
const char* name_of(const Core* core) { return core->name; }
const char* name_of(const ElementTraits& traits) { return traits.name; }
template <class Named> nb::tuple tuple_of(const Named& things) {
    nb::list names;
    for (const auto& thing : things) names.append(name_of(thing));
    return nb::tuple(names);
}

// Runs `work` without the GIL and raises what a signal handler raised meanwhile. (For few entries the GIL is held: to
// give it free costs as much as a small projection.) `threads`: how many are lent for it.
constexpr std::size_t many = std::numeric_limits<std::size_t>::max();
template <class Work> std::int64_t released(Work&& work, std::size_t entries = many, std::size_t threads = 0) {
    const Lent team(threads);
    std::optional<nb::gil_scoped_release> free;
    if (entries >= 4096) free.emplace();
    const std::int64_t result = work();
    free.reset();
    if (result == interrupted) throw nb::python_error();
    return result;
}

template <class Array> Batch batch(const Array& a, std::size_t inner, bool swapped = false) {
    return {const_cast<void*>(static_cast<const void*>(a.data())),
            a.ndim(),
            inner,
            a.shape_ptr(),
            a.stride_ptr(),
            a.itemsize(),
            swapped};
}

// The same of an array that must be like another one.
template <class Array>
Batch batch_like(const Batch& model, nb::dlpack::dtype type, const Array& a, std::size_t inner, bool swapped = false,
                 const char* what = "arrays") {
    const auto refuse = [&](const char* why) { throw nb::value_error((std::string(what) + why).c_str()); };
    if (a.dtype() != type) refuse(" differ in dtype");
    Batch vectors = batch(a, inner, swapped);
    if (vectors.rows() != model.rows() || vectors.length() != model.length()) refuse(" differ in shape");
    return vectors;
}

Batch mask_batch(const Input& where, std::size_t inner) {
    require(where.dtype() == nb::dtype<bool>(), "masks are booleans");
    return batch(where, inner);
}

// Leaves the entries of a job that do not count out.
void apply_mask(Job& job, const std::optional<Input>& where, std::size_t inner, const std::optional<Lengths>& lengths) {
    require(where.has_value() == lengths.has_value(), "masks and lengths belong together");
    if (!where || job.x.rows() == 0) return;
    job.where = mask_batch(*where, inner);
    require(job.where.rows() == job.x.rows() && job.where.length() == job.x.length(), "x and where differ in shape");
    const auto n = static_cast<std::int64_t>(job.x.length());
    const bool fit = std::all_of(lengths->data(), lengths->data() + lengths->size(),
                                 [n](std::int64_t length) { return length >= 0 && length <= n; });
    require(lengths->size() == job.x.rows() && fit, "lengths that are not those of the masks");
    job.lengths = lengths->data();
}

// The part of a job that does not depend on where the result goes.
Job job_for(const Input& x, const Plan& plan, std::size_t inner, bool swapped, const std::optional<Records>& records,
            const std::optional<Input>& where, const std::optional<Lengths>& lengths) {
    Job job;
    job.x = batch(x, inner, swapped);
    const std::size_t rows = job.x.rows();
    require(job.x.length() > 0, "vectors without entries");
    apply_mask(job, where, inner, lengths);
    if (rows > 0) plan.apply(job);
    if (records) {
        require(records->shape(0) == rows && records->shape(1) == record_size, "records of another shape");
        job.records = reinterpret_cast<Record*>(records->data());
    }
    plan.require_fits(element_of(x.dtype()));
    return job;
}

void count(const Input& where, std::size_t inner,
           const nb::ndarray<std::int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>& lengths) {
    const Batch masks = mask_batch(where, inner);
    require(lengths.size() == masks.rows(), "lengths needs one number per vector");
    if (masks.rows() == 0) return;
    released([&] { return core().count(masks, lengths.data(), no_signal_waits); }, masks.rows() * masks.length());
}

std::int64_t project(const Input& x, const Output& out, const Plan& plan, std::size_t inner, bool check_first,
                     bool x_swapped, bool out_swapped, const std::optional<Records>& records,
                     const std::optional<Input>& where, const std::optional<Lengths>& lengths, std::size_t threads) {
    Job job = job_for(x, plan, inner, x_swapped, records, where, lengths);
    job.out = batch_like(job.x, x.dtype(), out, inner, out_swapped, "x and out");
    if (job.x.rows() == 0) return all_good;
    if (plan.check && check_first) job.check = Check::all_first;
    const Element element = element_of(x.dtype());
    return released([&] { return core().project(element, job, no_signal_waits); }, many, threads);
}

// Contiguous vectors at an address. (To see a tensor as an array takes longer than to project a short one.)
Batch batch_at(std::uintptr_t place, std::size_t rows, std::size_t n, Element element) {
    return Batch::contiguous(reinterpret_cast<void*>(place), rows, n, traits_of(element).size);
}
std::int64_t project_memory(std::uintptr_t x, std::uintptr_t out, std::size_t rows, std::size_t n, std::size_t type,
                            const Plan& plan, std::uintptr_t scales, std::uintptr_t norms, std::uintptr_t active,
                            std::size_t threads) {
    const Element element = element_number(type);
    if (rows == 0) return all_good;
    Job job;
    job.x = batch_at(x, rows, n, element);
    job.out = batch_at(out, rows, n, element);
    job.scales = reinterpret_cast<double*>(scales);
    job.norms = reinterpret_cast<double*>(norms);
    job.active = reinterpret_cast<std::int8_t*>(active);
    plan.apply(job);
    plan.require_fits(element);
    return released([&] { return core().project(element, job, no_signal_waits); }, rows * n, threads);
}

std::int64_t project_many(const Arrays& arrays, const nb::list& plans, std::size_t threads) {
    const std::vector<ArrayJob> jobs = arrays.jobs(plans);
    return released([&] { return core().project_many(jobs, no_signal_waits); }, arrays.entries(), threads);
}

// The part of a job that all derivatives share.
GradientJob gradient_job(const Input& value, const std::optional<Input>& x, const Output& out, std::size_t inner) {
    GradientJob job;
    job.value = batch(value, inner);
    job.out = batch_like(job.value, value.dtype(), out, inner);
    job.has_x = x.has_value();
    if (x) job.x = batch_like(job.value, value.dtype(), *x, inner);
    return job;
}
void use_records(const ReadRecords& records, GradientJob& job) {
    require(records.shape(0) == job.value.rows() && records.shape(1) == record_size, "records of another shape");
    job.records = reinterpret_cast<const Record*>(records.data());
}
void run(const GradientJob& job, nb::dlpack::dtype type, std::size_t threads = 0) {
    const Element element = element_of(type);
    if (job.value.rows() > 0) released([&] { return core().gradient(element, job, no_signal_waits); }, many, threads);
}

// What is known of results whose derivatives are wanted, at addresses: scales, and where they are not those that the
// plan tells, norms and which ones bind; and where what is said about the targets goes, or 0.
struct Known {
    std::uintptr_t scales, norms, active, changes;

    void apply(const Plan& plan, GradientJob& job) const {
        plan.apply(job);
        job.scales = reinterpret_cast<const double*>(scales);
        job.norms = reinterpret_cast<const double*>(norms);
        job.active = reinterpret_cast<const std::int8_t*>(active);
        job.changes = reinterpret_cast<Change*>(changes);
        require(job.has_x || job.norm != NormRule::keep, "the rule 'keep' needs x");
    }
};

// Those of all vectors together, as one target for all of them is told; None without any.
nb::object total(const Change* changes, std::size_t rows) {
    if (!changes) return nb::none();
    Change sum{0, 0, 0, 0};
    for (std::size_t row = 0; row < rows; ++row) {
        sum.ratio += changes[row].ratio;
        sum.log_norm += changes[row].log_norm;
        sum.log_kept += changes[row].log_kept;
        sum.log_l1 += changes[row].log_l1;
    }
    return nb::make_tuple(sum.ratio, sum.log_norm, sum.log_kept, sum.log_l1);
}

nb::object multiply_memory(std::uintptr_t value, std::uintptr_t y, std::uintptr_t x, std::uintptr_t out,
                           std::size_t rows, std::size_t n, std::size_t type, const Plan& plan, std::uintptr_t scales,
                           std::uintptr_t norms, std::uintptr_t active, std::uintptr_t changes, std::size_t threads) {
    const Element element = element_number(type);
    if (rows == 0) return total(reinterpret_cast<const Change*>(changes), 0);
    GradientJob job;
    job.value = batch_at(value, rows, n, element);
    job.y = batch_at(y, rows, n, element);
    job.out = batch_at(out, rows, n, element);
    job.has_x = x != 0;
    if (x) job.x = batch_at(x, rows, n, element);
    job.mode = Mode::reverse;
    Known{scales, norms, active, changes}.apply(plan, job);
    released([&] { return core().gradient(element, job, no_signal_waits); }, rows * n, threads);
    return total(job.changes, rows);
}

nb::object multiply(const Input& value, const Input& y, const std::optional<Input>& x, const Output& out,
                    std::size_t inner, const Plan& plan, std::uintptr_t scales, std::uintptr_t norms,
                    std::uintptr_t active, std::uintptr_t changes, bool reverse, std::size_t threads) {
    GradientJob job = gradient_job(value, x, out, inner);
    job.y = batch_like(job.value, value.dtype(), y, inner);
    job.mode = reverse ? Mode::reverse : Mode::forward;
    if (job.value.rows() > 0) Known{scales, norms, active, changes}.apply(plan, job);
    run(job, value.dtype(), threads);
    return total(reinterpret_cast<const Change*>(changes), job.value.rows());
}

// What a call needs of NumPy: kept for ever, as modules are. (No C++ guard around an import, which may let another
// thread in.)
struct NumPy {
    PyObject *array_type = nullptr, *empty = nullptr, *empty_like = nullptr;
    std::array<PyObject*, 3> dtypes{};  // of the first elements

    // Found by the first call; by several at once more than once, of which one is kept.
    static const NumPy& get() {
        static std::atomic<const NumPy*> known{nullptr};
        if (const NumPy* found = known.load(std::memory_order_acquire)) return *found;
        const nb::module_ numpy = nb::module_::import_("numpy");
        const auto kept = [&](const nb::object& thing) { return nb::object(thing).release().ptr(); };
        auto found = std::make_unique<NumPy>();
        found->array_type = kept(numpy.attr("ndarray"));
        found->empty = kept(numpy.attr("empty"));
        for (std::size_t i = 0; i < found->dtypes.size(); ++i)
            found->dtypes[i] = kept(numpy.attr("dtype")(element_traits[i].name));
        found->empty_like = kept(numpy.attr("empty_like"));
        const NumPy* others = nullptr;
        return known.compare_exchange_strong(others, found.get(), std::memory_order_acq_rel) ? *found.release()
                                                                                             : *others;
    }
    bool is_array(nb::handle a) const { return reinterpret_cast<PyObject*>(Py_TYPE(a.ptr())) == array_type; }

    // The dtype of an array.
    static nb::object dtype_of(nb::handle array) {
        static PyObject* const name = PyUnicode_InternFromString("dtype");
        const nb::object dtype = nb::steal(PyObject_GetAttr(array.ptr(), name));
        if (!dtype.is_valid()) throw nb::python_error();
        return dtype;
    }
    // What the entries of such an array are, if it is one of the ordinary dtypes: others may be the same.
    std::optional<Element> element_of(nb::handle dtype) const {
        for (std::size_t i = dtypes.size(); i-- > 0;)
            if (dtype.ptr() == dtypes[i]) return static_cast<Element>(i);
        return {};
    }

    // A new array like x, with this dtype, whose buffer is `from`.
    nb::object new_like(nb::handle x, nb::handle dtype, const ArrayBuffer& from) const {
        if (!from.contiguous()) return nb::handle(empty_like)(x);
        // In half the time.
        static PyObject* const name = PyUnicode_InternFromString("shape");
        const nb::object shape =
            nb::steal(from.ndim() == 1 ? PyLong_FromSize_t(from.size()) : PyObject_GetAttr(x.ptr(), name));
        if (!shape.is_valid()) throw nb::python_error();
        PyObject* const arguments[] = {shape.ptr(), dtype.ptr()};
        const nb::object made = nb::steal(PyObject_Vectorcall(empty, arguments, 2, nullptr));
        if (!made.is_valid()) throw nb::python_error();
        return made;
    }
};

// The array with the result; the number of the first vector with NaN or infinity; or None where an array must be made
// or looked at first. `plans` has what planner(n, options, batch, axes) made before, or else it is asked, which may
// raise; without one (None) nothing is done then. What is `checked` may overlap in parts.
nb::object projected(nb::handle x, nb::handle out, const AskedOptions& options, const nb::dict& plans,
                     nb::handle planner, bool checked) {
    const NumPy& numpy = NumPy::get();
    const bool given = !out.is_none(), masked = !options["where"].is_none();
    if (masked || !numpy.is_array(x) || (given && !numpy.is_array(out))) return nb::none();
    const nb::object dtype = NumPy::dtype_of(x);
    const ArrayBuffer from(x.ptr(), false, numpy.element_of(dtype));
    const auto element = from.element();
    if (!element || (from.swapped() && !given)) return nb::none();
    const auto axes = VectorAxes::named(options["axis"].ptr(), from.ndim());
    const std::size_t n = axes ? from.length(*axes) : 0;
    if (n == 0) return nb::none();
    nb::object held = known_plan(plans.ptr(), options, n);
    if (!held.is_valid()) {
        if (planner.is_none()) return nb::none();
        held = planner(n, options.as_tuple(), from.batch_shape(*axes), axes->as_tuple());
    }
    const Plan& plan = nb::cast<const Plan&>(held);
    plan.require_fits(*element);

    nb::object result = given ? nb::borrow(out) : numpy.new_like(x, dtype, from);
    const ArrayBuffer to(result.ptr(), true, given ? numpy.element_of(NumPy::dtype_of(out)) : element);
    bool in_place = false;
    if (given) {
        if (to.element() != element || !to.same_shape(from)) return nb::none();
        in_place = to.same_memory(from);
        if (!checked && (!to.contiguous() || (!in_place && to.overlaps(from)))) return nb::none();
    }
    if (from.size() == 0) return result;
    Job job;
    job.x = from.batch(*axes);
    job.out = to.batch(*axes);
    plan.apply(job);
    // In place nothing must be lost.
    if (plan.check && (in_place || (given && to.overlaps(from)))) job.check = Check::all_first;
    const std::int64_t bad = released([&] { return core().project(*element, job, no_signal_waits); }, from.size());
    return bad == all_good ? result : nb::cast(bad);
}

// `options` are those of Python's Options, in order.
nb::object project_array(nb::handle x, nb::handle out, const nb::tuple& options, const nb::dict& plans,
                         nb::handle planner, bool checked) {
    return projected(x, out, AskedOptions(options), plans, planner, checked);
}

// The same for calls like an earlier one that have nothing unusual: the array, or None, and nothing is different from
// before the call but for results in `out`.
nb::object project_known(nb::handle x, nb::handle out, const nb::tuple& options, const nb::dict& plans) {
    nb::object result = projected(x, out, AskedOptions(options), plans, nb::none(), false);
    return PyLong_CheckExact(result.ptr()) ? nb::none() : result;
}

// A NumPy array that owns what was in `numbers`.
template <class N> nb::object to_array(std::vector<N>&& numbers) {
    auto* kept = new std::vector<N>(std::move(numbers));
    nb::capsule owner(kept, [](void* p) noexcept { delete static_cast<std::vector<N>*>(p); });
    return nb::cast(nb::ndarray<nb::numpy, N, nb::ndim<1>>(kept->data(), {kept->size()}, owner));
}

// (number of a bad vector or -1, starts, indices, the bytes of the values).
nb::tuple project_sparse(const Input& x, const Plan& plan, std::size_t inner, bool swapped,
                         const std::optional<Input>& where, const std::optional<Lengths>& lengths) {
    Job job = job_for(x, plan, inner, swapped, std::nullopt, where, lengths);
    const Element element = element_of(x.dtype());
    SparseResult result;
    result.starts.assign(1, 0);
    const std::int64_t bad =
        job.x.rows() == 0 ? all_good
                          : released([&] { return core().project_sparse(element, job, result, no_signal_waits); });
    return nb::make_tuple(bad, to_array(std::move(result.starts)), to_array(std::move(result.indices)),
                          to_array(std::move(result.values)));
}

void gradient_product(const Input& value, const Input& y, const std::optional<Input>& x, const Output& out,
                      std::size_t inner, const ReadRecords& records, std::string_view norm, bool nonnegative,
                      bool reverse, const std::optional<Records>& along) {
    GradientJob job = gradient_job(value, x, out, inner);
    use_records(records, job);
    job.y = batch_like(job.value, value.dtype(), y, inner);
    job.norm = rule_named(norm);
    const std::size_t rows = job.value.rows();
    require(x || job.norm != NormRule::keep, "the rule 'keep' needs x");
    require(!along || (along->shape(0) == rows && along->shape(1) == 3), "three numbers per vector");
    if (along) job.target_products = reinterpret_cast<TargetProduct*>(along->data());
    job.mode = reverse ? Mode::reverse : Mode::forward;
    job.nonnegative = nonnegative;
    run(job, value.dtype());
}

void target_gradient(const Input& value, const std::optional<Input>& x, const Output& by_l1, const Output& by_l2,
                     std::size_t inner, const ReadRecords& records) {
    GradientJob job = gradient_job(value, x, by_l1, inner);
    use_records(records, job);
    job.second = batch_like(job.value, value.dtype(), by_l2, inner);
    job.by_target = true;
    run(job, value.dtype());
}

void sums(const Input& x, const ReadRecords& pivots, std::size_t inner, bool swapped, bool nonnegative,
          const nb::ndarray<double, nb::ndim<3>, nb::c_contig, nb::device::cpu>& out,
          const std::optional<ReadRecords>& known, const std::optional<ReadNumbers>& references, std::size_t threads) {
    SumsJob job;
    job.x = batch(x, inner, swapped);
    job.count = pivots.shape(1);
    const std::size_t rows = job.x.rows(), fields = std::size(sum_fields);
    require(job.x.length() > 0, "vectors without entries");
    require(pivots.shape(0) == 1 || pivots.shape(0) == rows, "pivots need one row, or one per vector");
    require(out.shape(0) == rows && out.shape(1) == job.count && out.shape(2) == fields, "out is of another shape");
    require(!known || (known->shape(0) == rows && known->shape(1) == std::size(summary_fields)),
            "known is of another shape");
    require(!references || references->size() == rows, "references need one number per vector");
    if (rows == 0) return;
    if (known) job.known = reinterpret_cast<const Summary*>(known->data());
    if (references) job.references = references->data();
    job.pivots = pivots.data();
    job.pivot_step = pivots.shape(0) == 1 ? 0 : job.count;
    job.out = reinterpret_cast<Sums*>(out.data());
    job.nonnegative = nonnegative;
    const Element element = element_of(x.dtype());
    released([&] { return core().sums(element, job, no_signal_waits); }, rows * job.x.length(), threads);
}

void summary(const Input& x, std::size_t inner, bool swapped, bool nonnegative, const Records& out,
             std::size_t threads) {
    SummaryJob job;
    job.x = batch(x, inner, swapped);
    require(job.x.length() > 0, "vectors without entries");
    require(out.shape(0) == job.x.rows() && out.shape(1) == std::size(summary_fields), "out is of another shape");
    if (job.x.rows() == 0) return;
    job.out = reinterpret_cast<Summary*>(out.data());
    job.nonnegative = nonnegative;
    const Element element = element_of(x.dtype());
    released([&] { return core().summary(element, job, no_signal_waits); }, job.x.rows() * job.x.length(), threads);
}

// (where the entries of each vector start, the entries).
nb::tuple between(const Input& x, const ReadNumbers& lows, const ReadNumbers& highs, std::size_t inner, bool swapped,
                  bool nonnegative, const Records& out, const ReadRecords& known, const ReadNumbers& references,
                  std::size_t threads) {
    BetweenJob job;
    job.x = batch(x, inner, swapped);
    const std::size_t rows = job.x.rows();
    require(job.x.length() > 0, "vectors without entries");
    require(lows.size() == rows && highs.size() == rows && references.size() == rows, "numbers for other vectors");
    require(out.shape(0) == rows && out.shape(1) == std::size(sum_fields), "out is of another shape");
    require(known.shape(0) == rows && known.shape(1) == std::size(summary_fields), "known is of another shape");
    std::vector<std::vector<double>> inside(rows);
    job.lows = lows.data();
    job.highs = highs.data();
    job.references = references.data();
    job.known = reinterpret_cast<const Summary*>(known.data());
    job.out = reinterpret_cast<Sums*>(out.data());
    job.inside = &inside;
    job.nonnegative = nonnegative;
    const Element element = element_of(x.dtype());
    if (rows > 0)
        released([&] { return core().between(element, job, no_signal_waits); }, rows * job.x.length(), threads);
    std::vector<std::int64_t> starts{0};
    std::vector<double> entries;
    for (const auto& some : inside) {
        entries.insert(entries.end(), some.begin(), some.end());
        starts.push_back(static_cast<std::int64_t>(entries.size()));
    }
    return nb::make_tuple(to_array(std::move(starts)), to_array(std::move(entries)));
}

void sparseness(const Input& x, std::size_t inner, bool swapped,
                const nb::ndarray<double, nb::ndim<1>, nb::c_contig, nb::device::cpu>& out, std::size_t threads) {
    const Batch vectors = batch(x, inner, swapped);
    require(out.size() == vectors.rows(), "out needs one number per vector");
    if (vectors.rows() == 0) return;
    const Element element = element_of(x.dtype());
    released([&] { return core().sparseness(element, vectors, out.data(), no_signal_waits); }, many, threads);
}

// ---- a vector that lies in parts; each array is one of them ----

using Where = std::optional<Input>;
using Levels = std::vector<std::tuple<std::int64_t, int, std::int64_t>>;

HistogramJob part_job(const Input& x, bool nonnegative, const Where& where) {
    HistogramJob job;
    job.x = batch(x, x.ndim());
    job.nonnegative = nonnegative;
    if (!where) return job;
    job.where = mask_batch(*where, where->ndim());
    job.masked = true;
    require(job.where.length() == job.x.length(), "x and where differ in shape");
    return job;
}

nb::object histogram(const Input& x, std::int64_t lower, std::uint64_t span, int width, const Levels& levels,
                     bool nonnegative, const Where& where) {
    HistogramJob job = part_job(x, nonnegative, where);
    require(width >= 0 && width <= widest_bin, "moments are of 0 to 52 bits");
    require(levels.size() <= most_levels, "there are up to three levels of bins");
    job.lower = lower;
    job.span = span;
    job.width = width;
    for (std::size_t i = 0; i < levels.size(); ++i) {
        const auto [start, bits, count] = levels[i];
        require(bits >= 0 && bits <= widest_bin, "bins are 2^0 to 2^52 keys wide");
        require(count > 0 && count <= static_cast<std::int64_t>(most_bins), "a level has 1 to 4096 bins");
        job.levels[i] = {start, bits, static_cast<std::uint64_t>(count)};
    }
    require(job.bins() <= most_bins, "a histogram has 4096 bins at most");
    std::vector<std::int64_t> numbers(job.size());
    job.out = numbers.data();
    released([&] { return core().histogram(element_of(x.dtype()), job, no_signal_waits); });
    return to_array(std::move(numbers));
}

nb::object gather(const Input& x, std::int64_t lower, std::uint64_t span, bool nonnegative, const Where& where,
                  bool places) {
    HistogramJob job = part_job(x, nonnegative, where);
    job.lower = lower;
    job.span = span;
    std::vector<std::int64_t> keys;
    released([&] { return core().gather(element_of(x.dtype()), job, places, keys, no_signal_waits); });
    return to_array(std::move(keys));
}

nb::object neighbours(const Input& x, std::int64_t key, bool nonnegative, const Where& where) {
    HistogramJob job = part_job(x, nonnegative, where);
    job.lower = key;
    std::vector<std::int64_t> found(2);
    job.out = found.data();
    released([&] { return core().neighbours(element_of(x.dtype()), job, no_signal_waits); });
    return to_array(std::move(found));
}

void write(const Input& x, const Output& out, const std::array<double, std::size(formula_fields)>& formula,
           bool nonnegative, std::int64_t place, const Where& where) {
    const HistogramJob job = part_job(x, nonnegative, where);
    const Batch to = batch_like(job.x, x.dtype(), out, out.ndim(), false, "x and out");
    require(place >= -1 && place < static_cast<std::int64_t>(job.x.length()), "no such place");
    if (job.x.length() == 0) return;
    const auto given = std::bit_cast<Formula>(formula);
    released([&] { return core().write(element_of(x.dtype()), job, to, given, place); });
}

void add_constants(nb::module_& m) {
    m.attr("RECORD_FIELDS") = tuple_of(record_fields);
    m.attr("CHANGE_FIELDS") = tuple_of(change_fields);
    m.attr("SUM_FIELDS") = tuple_of(sum_fields);
    m.attr("SUMMARY_FIELDS") = tuple_of(summary_fields);
    m.attr("FORMULA_FIELDS") = tuple_of(formula_fields);
    m.attr("LIMB_BITS") = limb_bits;
    m.attr("MOST_BINS") = most_bins;
    m.attr("OPTION_FIELDS") = tuple_of(option_fields);
    m.attr("RULES") = tuple_of(rule_names);
    m.attr("ELEMENTS") = tuple_of(element_traits);
    m.attr("BUFFER_BYTES") = SamplingRules{}.buffer_bytes;
    // What the environment asks for is refused in Python, which finds the words: an error here would be an ImportError.
    const Core* chosen = choose_core();
    m.attr("ISA") = chosen ? nb::cast(chosen->name) : nb::none();
    m.attr("COMPILED_ISAS") = tuple_of(compiled_cores());
    m.attr("AVAILABLE_ISAS") = tuple_of(available_cores());
}

void add_projections(nb::module_& m) {
    nb::class_<Plan>(m, "Plan", "Targets and options, ready for use with any number of arrays.")
        .def(nb::init<const Numbers&, const Numbers&, const Numbers&, const Numbers&, std::string_view, bool, bool,
                      bool, bool, std::string_view, bool, bool, bool>(),
             "ratio"_a, "slack"_a, "slack_low"_a, "l2"_a, "norm"_a, "nonnegative"_a, "only_increase"_a, "l1_given"_a,
             "at_most"_a, "solver"_a, "check"_a, "by_length"_a = false, "both_norms"_a = false)
        .def("sample", &Plan::sample, "thresholds"_a, nb::sig("def sample(self, **thresholds: float) -> None"),
             "Set the thresholds of the sampled search (for tests).");
    m.def("project", &project, "x"_a, "out"_a.noconvert(), "plan"_a, "inner"_a, "check_first"_a, "x_swapped"_a = false,
          "out_swapped"_a = false, "records"_a.noconvert().none() = nb::none(), "where"_a.none() = nb::none(),
          "lengths"_a.noconvert().none() = nb::none(), "threads"_a = 0,
          "Project every vector (the last `inner` axes of x) into out. `where` has the entries that count, if not all "
          "do, and `lengths` how many those are. `threads`, here and elsewhere: how many to use of those that "
          "find_openmp found; 0: our own. Returns -1, or the number of the first vector with NaN or infinity.");
    m.def("project_array", &project_array, "x"_a.none(), "out"_a.none(), "options"_a, "plans"_a, "planner"_a,
          "checked"_a = false,
          nb::sig("def project_array(x: object, out: object, options: tuple, plans: dict, planner: object, "
                  "checked: bool = False) -> NDArray | int | None"),
          "Project an array along any axes; see the source for what comes back.");
    m.def("project_known", &project_known, "x"_a.none(), "out"_a.none(), "options"_a, "plans"_a,
          nb::sig("def project_known(x: object, out: object, options: tuple, plans: dict) -> NDArray | None"),
          "Project an array as was asked before, or return None: whoever calls does the rest.");
    m.def("project_memory", &project_memory, "x"_a, "out"_a, "rows"_a, "n"_a, "element"_a, "plan"_a, "scales"_a,
          "norms"_a, "active"_a, "threads"_a,
          "Project contiguous vectors at an address; `element` is a place in ELEMENTS. `scales` and `norms`, if not 0, "
          "are where a double for each vector goes, and `active` where a byte does. Returns what project does.");
    nb::class_<Arrays>(m, "Arrays", "Where several arrays lie, to be projected in place in one call.")
        .def(nb::init<const std::vector<Arrays::Described>&>(), "described"_a,
             "Of each array its address, shape, strides in entries, how many of the last axes form a vector, a place "
             "in ELEMENTS, and whether it shares memory with another one.");
    m.def("project_many", &project_many, "arrays"_a, "plans"_a, "threads"_a,
          "Project arrays in place, each by a plan of its own: all, or none if a vector with NaN or infinity is "
          "refused. Returns -1, or the number of that vector, counted through the arrays.");
    m.def("count", &count, "where"_a, "inner"_a, "lengths"_a.noconvert(),
          "How many entries of every vector (the last `inner` axes) a mask leaves.");
    m.def("project_sparse", &project_sparse, "x"_a, "plan"_a, "inner"_a, "swapped"_a, "where"_a.none() = nb::none(),
          "lengths"_a.noconvert().none() = nb::none(),
          nb::sig("def project_sparse(x: NDArray, plan: Plan, inner: int, swapped: bool, where: NDArray | None = None, "
                  "lengths: NDArray[numpy.int64] | None = None) -> "
                  "tuple[int, NDArray[numpy.int64], NDArray[numpy.int64], NDArray[numpy.uint8]]"),
          "Project every vector and return the nonzero entries: the first bad vector or -1, where each vector starts, "
          "indices, and the bytes of the values.");
}

void add_derivatives(nb::module_& m) {
    m.def("gradient_product", &gradient_product, "value"_a, "y"_a, "x"_a.none(), "out"_a.noconvert(), "inner"_a,
          "records"_a, "norm"_a, "nonnegative"_a, "reverse"_a, "along"_a.noconvert().none() = nb::none(),
          "Algorithm 3 for every vector: the Jacobian (or its transpose) times y. `along` takes the derivatives by l1, "
          "by l2 and by the logarithm of both, times y.");
    m.def("multiply", &multiply, "value"_a, "y"_a, "x"_a.none(), "out"_a.noconvert(), "inner"_a, "plan"_a, "scales"_a,
          "norms"_a, "active"_a, "changes"_a, "reverse"_a, "threads"_a,
          nb::sig("def multiply(value: NDArray, y: NDArray, x: NDArray | None, out: NDArray, inner: int, plan: Plan, "
                  "scales: int, norms: int, active: int, changes: int, reverse: bool, threads: int) -> "
                  "tuple[float, float, float, float] | None"),
          "The same for results of a plan, of which `scales` are known, and where they are not 0 `norms` and `active`: "
          "addresses of one number for each vector. `changes`, if not 0, takes the numbers that CHANGE_FIELDS names of "
          "each vector; their sums are returned.");
    m.def("multiply_memory", &multiply_memory, "value"_a, "y"_a, "x"_a, "out"_a, "rows"_a, "n"_a, "element"_a, "plan"_a,
          "scales"_a, "norms"_a, "active"_a, "changes"_a, "threads"_a,
          nb::sig("def multiply_memory(value: int, y: int, x: int, out: int, rows: int, n: int, element: int, "
                  "plan: Plan, scales: int, norms: int, active: int, changes: int, threads: int) -> "
                  "tuple[float, float, float, float] | None"),
          "The transposed Jacobians times y in the same manner, of contiguous vectors at addresses.");
    m.def("target_gradient", &target_gradient, "value"_a, "x"_a.none(), "by_l1"_a.noconvert(), "by_l2"_a.noconvert(),
          "inner"_a, "records"_a, "The derivatives of every projection by its target norms.");
}

void add_others(nb::module_& m) {
    m.def("thread_count", &thread_count, "How many threads a call on arrays may use.");
    m.def("set_thread_count", &set_thread_count, "count"_a,
          "Set how many threads a call may use; the number that holds without that takes it back.");
    m.def("group_processors", &group_processors, "root"_a = "",
          "How many processors the control groups give this process time for; 0: no limit. `root` is where /proc and "
          "/sys are.");
    m.def(
        "find_openmp",
        [](const char* library) {
            const OpenMP found = find_openmp(library);
            use_openmp(found);
            return found.parallel != nullptr;
        },
        "library"_a,
        "Use the threads of the OpenMP runtime that a loaded library computes with, where some are lent; False, and "
        "our own work there, if it has none, or not GCC's.");
    m.def(
        "use_large_pages", [](const Output& array) { use_large_pages(array.data(), array.nbytes()); },
        "array"_a.noconvert(),
        "Ask for large pages under a contiguous array that is about to be written for the first time.");
    m.def("sums", &sums, "x"_a, "pivots"_a, "inner"_a, "swapped"_a, "nonnegative"_a, "out"_a.noconvert(),
          "known"_a.none() = nb::none(), "references"_a.none() = nb::none(), "threads"_a = 0,
          "Algorithm 1 for every vector and each of its pivots (a row of numbers per vector, or one for all): what "
          "SUM_FIELDS names, over the entries above the pivot. Fewer readings are needed with what is `known` by "
          "`summary`, and with `references` near the means that come out.");
    m.def("between", &between, "x"_a, "lows"_a, "highs"_a, "inner"_a, "swapped"_a, "nonnegative"_a, "out"_a.noconvert(),
          "known"_a, "references"_a, "threads"_a = 0,
          nb::sig("def between(x: NDArray, lows: NDArray[numpy.float64], highs: NDArray[numpy.float64], inner: int, "
                  "swapped: bool, nonnegative: bool, out: NDArray[numpy.float64], known: NDArray[numpy.float64], "
                  "references: NDArray[numpy.float64], threads: int = 0) -> "
                  "tuple[NDArray[numpy.int64], NDArray[numpy.float64]]"),
          "What SUM_FIELDS names of the entries above `highs`, NaN where they are of extreme sizes; and the entries "
          "between both pivots of each vector: where they start, and themselves.");
    m.def("summary", &summary, "x"_a, "inner"_a, "swapped"_a, "nonnegative"_a, "out"_a.noconvert(), "threads"_a = 0,
          "What SUMMARY_FIELDS names, of every vector; NaN where it is not finite.");
    m.def("sparseness", &sparseness, "x"_a, "inner"_a, "swapped"_a, "out"_a.noconvert(), "threads"_a = 0,
          "sigma(x) of every vector.");
}

void add_parts(nb::module_& m) {
    m.def("histogram", &histogram, "x"_a, "lower"_a, "span"_a, "width"_a, "levels"_a, "nonnegative"_a,
          "where"_a.none() = nb::none(),
          nb::sig("def histogram(x: NDArray, lower: int, span: int, width: int, levels: Sequence[tuple[int, int, int]],"
                  " nonnegative: bool, where: NDArray | None = None) -> NDArray[numpy.int64]"),
          "The histogram of a part of a vector, as one row of integers; those of other parts are added to it.");
    m.def("gather", &gather, "x"_a, "lower"_a, "span"_a, "nonnegative"_a, "where"_a.none() = nb::none(),
          "places"_a = false,
          nb::sig("def gather(x: NDArray, lower: int, span: int, nonnegative: bool, where: NDArray | None = None, "
                  "places: bool = False) -> NDArray[numpy.int64]"),
          "The keys of a part's entries that are among `span` from `lower` on; with `places` each one is followed by "
          "its place in the part.");
    m.def("neighbours", &neighbours, "x"_a, "key"_a, "nonnegative"_a, "where"_a.none() = nb::none(),
          nb::sig("def neighbours(x: NDArray, key: int, nonnegative: bool, where: NDArray | None = None) "
                  "-> NDArray[numpy.int64]"),
          "The next smaller key in a part, and where in it the first entry with this key is, negated.");
    m.def(
        "write", &write, "x"_a, "out"_a.noconvert(), "formula"_a, "nonnegative"_a, "place"_a = -1,
        "where"_a.none() = nb::none(),
        "Write the results of a part's entries; the formula has the numbers that FORMULA_FIELDS names. `place`: where "
        "the first of tied entries is; -1 if not in this part.");
}

}  // namespace
}  // namespace hoyer

// What threadpoolctl finds in the library (src/hoyer/engines/limits.py).
extern "C" {
__attribute__((visibility("default"))) int hoyer_get_num_threads() { return static_cast<int>(hoyer::thread_count()); }
__attribute__((visibility("default"))) int hoyer_num_threads_set() { return static_cast<int>(hoyer::set_count()); }
__attribute__((visibility("default"))) void hoyer_set_num_threads(int count) {
    hoyer::set_thread_count(static_cast<std::size_t>(std::max(0, count)));
}
}

NB_MODULE(_core, m) {
    // Plans are remembered until the interpreter ends: those are no leaks.
    nanobind::set_leak_warnings(false);
    m.doc() = "The compiled core of hoyer: projections, their derivatives and sparseness, for batches of vectors.";
    hoyer::add_constants(m);
    hoyer::add_projections(m);
    hoyer::add_derivatives(m);
    hoyer::add_others(m);
    hoyer::add_parts(m);
    hoyer::xla::add_handlers(m, hoyer::choose_core());
}
