// The core for one instruction set: compiled several times with different flags, each time under another HOYER_ISA.
#include "run/rows.hpp"

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
    [](Element element, const Batch& batch, double* out, bool (*go_on)()) {
        return with_element(element, [&]<class E>() { return sparseness_rows<E>(batch, out, go_on); });
    },
};

}  // namespace HOYER_ISA
}  // namespace hoyer
