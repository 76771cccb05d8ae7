// The core as a WebAssembly module, for a page of the documentation: `hoyer.solve` on one vector of doubles.
#include <cstdlib>

#include "run/rows.hpp"

namespace hoyer {

namespace {

// As in Python's target.py: l1/l2, n - K in two doubles, and l2. Long doubles have 113 bits here, more than the pairs
// of doubles there.
struct Target {
    double ratio, slack, slack_low, l2;

    static Target of(long double ratio, long double slack, double l2) {
        const auto high = static_cast<double>(slack);
        return {static_cast<double>(ratio), high, static_cast<double>(slack - high), l2};
    }
};

Target from_sparseness(std::size_t n, double sparseness, double l2) {
    if (sparseness == 1) return {1, static_cast<double>(n - 1), 0, l2};
    const long double root = sqrtl(static_cast<long double>(n)), sigma = sparseness;
    const long double ratio = 1 + (1 - sigma) * (root - 1);
    return Target::of(ratio, sigma * (root - 1) * (root + ratio), l2);
}

Target from_l1(std::size_t n, double l1) { return {l1, static_cast<double>(n), 0, 1}; }

Target from_bounds(std::size_t n, double l1, double l2) {
    if (l1 == 0 || l2 == 0) return {0, static_cast<double>(n), 0, 0};
    // Bounds that never bind are brought nearer.
    const double first = std::min(l1, 2 * std::sqrt(static_cast<double>(n)) * l2), second = std::min(l2, 2 * l1);
    const long double ratio = static_cast<long double>(first) / second;
    return Target::of(ratio, n - ratio * ratio, second);
}

template <bool Signed> bool project(const Job& job, const double* x, double* out) {
    const std::size_t n = job.x.length();
    const Request request = request_for<double>(job);
    Projector<Signed, double> projector(x, n, form_of(job, 0), job.l2[0], request);
    const Solution<double>& solution = projector.solve();
    if (!solution.finite) return false;
    *job.records = solution;
    write<Signed>(x, out, n, solution);
    return true;
}

}  // namespace
}  // namespace hoyer

#define EXPORT(name) extern "C" __attribute__((export_name(#name)))

EXPORT(allocate) void* hoyer_allocate(std::size_t bytes) { return std::malloc(bytes); }
EXPORT(release) void hoyer_release(void* memory) { std::free(memory); }

// Projects a vector of n doubles and fills in its record. NaN stands for a number that was not given, and `rule` is a
// number of NormRule. False if an entry is not finite.
EXPORT(project)
bool hoyer_project(double* x, double* out, std::size_t n, double sparseness, double l1, double l2, int rule,
                   bool nonnegative, bool only_increase, bool at_most, hoyer::Record* record) {
    using namespace hoyer;
    const Target target = !std::isnan(sparseness) ? from_sparseness(n, sparseness, l2)
                          : std::isnan(l2)        ? from_l1(n, l1)
                                                  : from_bounds(n, l1, l2);
    Job job;
    job.x = Batch::contiguous(x, 1, n, sizeof *x);
    job.ratio = {&target.ratio};
    job.slack = {&target.slack};
    job.slack_low = {&target.slack_low};
    job.l2 = {&target.l2};
    job.request.norm = static_cast<NormRule>(rule);
    job.request.only_increase = only_increase;
    job.request.at_most = at_most;
    job.records = record;
    return nonnegative ? project<false>(job, x, out) : project<true>(job, x, out);
}

EXPORT(sparseness) double hoyer_sparseness(double* x, std::size_t n) {
    const auto go_on = [] { return true; };
    double sigma = 0;
    hoyer::sparseness_rows<double>(hoyer::Batch::contiguous(x, 1, n, sizeof *x), &sigma, go_on);
    return sigma;
}
