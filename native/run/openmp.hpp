// The OpenMP runtime that another library computes with: found where it is loaded, never linked.
#pragma once

namespace hoyer {

// What is used of it; all null without one.
struct OpenMP {
    // What GCC compiles `#pragma omp parallel` to: every thread of a team calls run(data), the caller too, and all of
    // them are waited for.
    void (*parallel)(void (*run)(void*), void* data, unsigned threads, unsigned flags) = nullptr;
    int (*in_parallel)() = nullptr;
};

// The runtime that a loaded library (its name without a path) is bound to, if it is GCC's. Others that know the name
// GOMP_parallel, Intel's and LLVM's, were not tried.
OpenMP find_openmp(const char* library);

}  // namespace hoyer
