// The core as functions that XLA's programs on the CPU call: on XLA's threads, without Python and its lock.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "binding/handlers.hpp"
#include "binding/xla_call.hpp"

namespace hoyer::xla {
namespace {

// What a call asks for, as one number: switches, then the rule and the solver.
struct Asked {
    std::int64_t bits = 0;

    static constexpr const char* names[] = {"nonnegative", "only_increase", "l1_given", "at_most", "reverse"};
    static constexpr int rule_place = 8, solver_place = 12;

    bool has(int place) const { return bits >> place & 1; }
    bool nonnegative() const { return has(0); }
    bool only_increase() const { return has(1); }
    bool l1_given() const { return has(2); }
    bool at_most() const { return has(3); }
    bool reverse() const { return has(4); }
    NormRule rule() const { return static_cast<NormRule>(bits >> rule_place & 15); }
    Solver solver() const { return static_cast<Solver>(bits >> solver_place & 15); }
};

// Rows of doubles, or of the halves of their bits: one for all vectors, or one for each.
const double* doubles(const Buffer& buffer, std::size_t rows, std::size_t columns, std::size_t& step) {
    const std::size_t size = buffer.count() * (buffer.type == Type::f64 ? 2 : buffer.type == Type::u32 ? 1 : 0) / 2;
    step = size == columns ? 0 : columns;
    return size == columns || size == rows * columns ? static_cast<const double*>(buffer.data) : nullptr;
}

// Whether a buffer has a number of this type for each vector, or none.
bool is_for(const Buffer& buffer, Type type, std::size_t rows) {
    return buffer.type == type && (buffer.count() == rows || buffer.count() == 0);
}

// Arguments: vectors; goals (l1/l2, n - K and its second half, l2); masks and the lengths that they leave, if there are
// any. Results: projections; scales, or records.
Error* project(const CallFrame& frame) {
    const Buffers &in = frame.arguments, &out = frame.results;
    Asked asked;
    if ((in.size != 2 && in.size != 4) || out.size != 2 || !frame.attributes.read("asked", asked.bits))
        return frame.error("hoyer_project: called with other arguments");
    const Buffer &x = *in.items[0], &told = *out.items[1];
    const auto element = element_of(x.type);
    if (!element || x.last() == 0 || !same_shape(x, *out.items[0]) || told.type != Type::f64)
        return frame.error("hoyer_project: arrays of other types or shapes");
    const std::size_t rows = x.count(1), itemsize = traits_of(*element).size;
    if (rows == 0) return nullptr;
    Job job;
    job.x = batch_of(x, itemsize);
    job.out = batch_of(*out.items[0], itemsize);
    std::size_t step;
    const double* goals = doubles(*in.items[1], rows, 4, step);
    if (!goals) return frame.error("hoyer_project: goals for other vectors");
    PerRow* const parts[] = {&job.ratio, &job.slack, &job.slack_low, &job.l2};
    for (std::size_t i = 0; i < 4; ++i) *parts[i] = {goals + i, step, nullptr};
    if (in.size == 4) {
        const Buffer &where = *in.items[2], &lengths = *in.items[3];
        if (where.type != Type::boolean || !same_shape(x, where) || lengths.type != Type::s64 ||
            lengths.count() != rows)
            return frame.error("hoyer_project: masks for other vectors");
        job.where = batch_of(where, 1);
        job.lengths = static_cast<const std::int64_t*>(lengths.data);
    }
    job.request = {asked.rule(), asked.solver(), asked.only_increase(), asked.l1_given(), asked.at_most(), {}, 0, 0};
    job.nonnegative = asked.nonnegative();
    if (told.count() == rows)
        job.scales = static_cast<double*>(told.data);
    else if (told.count() == rows * record_size)
        job.records = static_cast<Record*>(told.data);
    else
        return frame.error("hoyer_project: records for other vectors");
    if (x.data != out.items[0]->data) expect_writes(*out.items[0], itemsize);
    chosen->project(*element, job, go_on);
    return nullptr;
}

// Arguments: projections; what they are multiplied with; scales; l1/l2 and l2 that were asked for; the l2 of the
// results where that does not tell it, and which norms bind, for each vector or for none; what was projected, if that
// is needed. Result: products.
Error* multiply(const CallFrame& frame) {
    const Buffers &in = frame.arguments, &out = frame.results;
    Asked asked;
    if ((in.size != 6 && in.size != 7) || out.size != 1 || !frame.attributes.read("asked", asked.bits))
        return frame.error("hoyer_multiply: called with other arguments");
    const Buffer &value = *in.items[0], &y = *in.items[1], &scales = *in.items[2], &norms = *in.items[4],
                 &active = *in.items[5];
    const auto element = element_of(value.type);
    if (!element || value.last() == 0 || y.type != value.type || out.items[0]->type != value.type ||
        !same_shape(value, y) || !same_shape(value, *out.items[0]))
        return frame.error("hoyer_multiply: arrays of other types or shapes");
    if (asked.rule() == NormRule::keep && in.size != 7) return frame.error("hoyer_multiply: the rule needs x");
    const std::size_t rows = value.count(1), itemsize = traits_of(*element).size;
    if (rows == 0) return nullptr;
    std::size_t step;
    const double* goals = doubles(*in.items[3], rows, 2, step);
    if (!goals || scales.type != Type::f64 || scales.count() != rows || !is_for(norms, Type::f64, rows) ||
        !is_for(active, Type::s8, rows))
        return frame.error("hoyer_multiply: numbers for other vectors");
    GradientJob job;
    job.value = batch_of(value, itemsize);
    job.y = batch_of(y, itemsize);
    job.out = batch_of(*out.items[0], itemsize);
    job.has_x = in.size == 7;
    if (job.has_x) {
        const Buffer& x = *in.items[6];
        if (x.type != value.type || !same_shape(value, x)) return frame.error("hoyer_multiply: x of another shape");
        job.x = batch_of(x, itemsize);
    }
    job.scales = static_cast<const double*>(scales.data);
    job.ratio = {goals, step, nullptr};
    job.l2 = {goals + 1, step, nullptr};
    if (norms.count()) job.norms = static_cast<const double*>(norms.data);
    if (active.count()) job.active = static_cast<const std::int8_t*>(active.data);
    job.norm = asked.rule();
    job.mode = asked.reverse() ? Mode::reverse : Mode::forward;
    job.nonnegative = asked.nonnegative();
    if (y.data != out.items[0]->data && value.data != out.items[0]->data) expect_writes(*out.items[0], itemsize);
    chosen->gradient(*element, job, go_on);
    return nullptr;
}

// Argument: vectors. Result: sigma of each, as doubles.
Error* sparseness(const CallFrame& frame) {
    if (frame.arguments.size != 1 || frame.results.size != 1)
        return frame.error("hoyer_sparseness: called with other arguments");
    const Buffer &x = *frame.arguments.items[0], &sigma = *frame.results.items[0];
    const auto element = element_of(x.type);
    if (!element || x.last() == 0 || sigma.type != Type::f64 || sigma.count() != x.count(1))
        return frame.error("hoyer_sparseness: arrays of other types or shapes");
    if (x.count(1) > 0)
        chosen->sparseness(*element, batch_of(x, traits_of(*element).size), static_cast<double*>(sigma.data), go_on);
    return nullptr;
}

}  // namespace

void add_handlers(nanobind::module_& m, const Core* core) {
    namespace nb = nanobind;
    chosen = core;
    nb::dict handlers, places;
    if (chosen) {
        handlers["hoyer_project"] = nb::capsule(reinterpret_cast<const void*>(&handler<project>));
        handlers["hoyer_multiply"] = nb::capsule(reinterpret_cast<const void*>(&handler<multiply>));
        handlers["hoyer_sparseness"] = nb::capsule(reinterpret_cast<const void*>(&handler<sparseness>));
        add_part_handlers(handlers);
    }
    for (std::size_t i = 0; i < std::size(Asked::names); ++i) places[Asked::names[i]] = i;
    places["rule"] = Asked::rule_place;
    places["solver"] = Asked::solver_place;
    m.attr("XLA_HANDLERS") = handlers;
    m.attr("XLA_PLACES") = places;
}

}  // namespace hoyer::xla
