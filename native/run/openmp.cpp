// The search for a loaded OpenMP runtime, by the dynamic linker.
//
// On Linux only: elsewhere PyTorch comes with LLVM's runtime, or Microsoft's.
#include "run/openmp.hpp"

#if defined(__linux__)

#include <dlfcn.h>

#include <cstring>

namespace hoyer {
namespace {

// Where a name leads that `library` uses: to the libraries of all first, which may have been preloaded, then to its
// own.
void* bound(void* library, const char* name) {
    void* const common = dlsym(RTLD_DEFAULT, name);
    return common ? common : dlsym(library, name);
}

bool is_libgomp(void* function) {
    Dl_info info;
    if (!function || !dladdr(function, &info) || !info.dli_fname) return false;
    const char* slash = std::strrchr(info.dli_fname, '/');
    return std::strncmp(slash ? slash + 1 : info.dli_fname, "libgomp", 7) == 0;
}

}  // namespace

OpenMP find_openmp(const char* library) {
    void* const loaded = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
    if (!loaded) return {};
    OpenMP found;
    void* const parallel = bound(loaded, "GOMP_parallel");
    void* const in_parallel = bound(loaded, "omp_in_parallel");
    if (is_libgomp(parallel) && is_libgomp(in_parallel)) {
        found.parallel = reinterpret_cast<decltype(found.parallel)>(parallel);
        found.in_parallel = reinterpret_cast<decltype(found.in_parallel)>(in_parallel);
    }
    dlclose(loaded);  // it was loaded before, and stays
    return found;
}

}  // namespace hoyer

#else

namespace hoyer {

OpenMP find_openmp(const char*) { return {}; }

}  // namespace hoyer

#endif
