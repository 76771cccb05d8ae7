// The core for one instruction set: compiled several times with different flags, each time under another HOYER_ISA.
#include "parts/outline.hpp"
#include "run/many.hpp"

namespace hoyer {
inline namespace HOYER_ISA {

extern const Core core;

#define HOYER_QUOTE(name) #name
#define HOYER_NAME(name) HOYER_QUOTE(name)

const Core core{
    HOYER_NAME(HOYER_ISA),
    [](Element element, const Job& job, bool (*go_on)()) {
        return with_element(element, [&]<class E>() {
            return job.nonnegative ? project_rows<E, false>(job, go_on) : project_rows<E, true>(job, go_on);
        });
    },
    project_many,
    [](Element element, const Job& job, SparseResult& result, bool (*go_on)()) {
        return with_element(element, [&]<class E>() {
            return job.nonnegative ? project_sparse_rows<E, false>(job, result, go_on)
                                   : project_sparse_rows<E, true>(job, result, go_on);
        });
    },
    [](Element element, const GradientJob& job, bool (*go_on)()) {
        return with_element(element, [&]<class E>() { return gradient_rows<E>(job, go_on); });
    },
    [](Element element, const SumsJob& job, bool (*go_on)()) {
        return with_element(element, [&]<class E>() {
            return job.nonnegative ? sums_rows<E, false>(job, go_on) : sums_rows<E, true>(job, go_on);
        });
    },
    [](Element element, const SummaryJob& job, bool (*go_on)()) {
        return with_element(element, [&]<class E>() {
            return job.nonnegative ? summary_rows<E, false>(job, go_on) : summary_rows<E, true>(job, go_on);
        });
    },
    [](Element element, const BetweenJob& job, bool (*go_on)()) {
        return with_element(element, [&]<class E>() {
            return job.nonnegative ? between_rows<E, false>(job, go_on) : between_rows<E, true>(job, go_on);
        });
    },
    [](Element element, const Batch& batch, double* out, bool (*go_on)()) {
        return with_element(element, [&]<class E>() { return sparseness_rows<E>(batch, out, go_on); });
    },
    count_rows,
    [](Element element, const HistogramJob& job, bool (*go_on)()) {
        return with_element(element, [&]<class E>() {
            return job.nonnegative ? histogram<E, false>(job, go_on) : histogram<E, true>(job, go_on);
        });
    },
    [](Element element, const HistogramJob& job, bool places, std::vector<std::int64_t>& keys, bool (*go_on)()) {
        return with_element(element, [&]<class E>() {
            return job.nonnegative ? gather<E, false>(job, places, keys, go_on)
                                   : gather<E, true>(job, places, keys, go_on);
        });
    },
    [](Element element, const HistogramJob& job, bool (*go_on)()) {
        return with_element(element, [&]<class E>() {
            return job.nonnegative ? neighbours<E, false>(job, go_on) : neighbours<E, true>(job, go_on);
        });
    },
    [](Element element, const HistogramJob& job, const Batch& out, const Formula& formula, std::int64_t place) {
        return with_element(element, [&]<class E>() {
            job.nonnegative ? write_by<E, false>(formula, job, out, place)
                            : write_by<E, true>(formula, job, out, place);
            return all_good;
        });
    },
    [](Element element, const HistogramJob& job, bool (*go_on)()) {
        return with_element(element, [&]<class E>() {
            return job.nonnegative ? outline<E, false>(job, go_on) : outline<E, true>(job, go_on);
        });
    },
};

}  // namespace HOYER_ISA
}  // namespace hoyer
