// Which cores were compiled, and which of them this processor runs.
#pragma once

#include <vector>

#include "jobs.hpp"

namespace hoyer {

namespace baseline {
extern const Core core;
}
#ifdef HOYER_X86
namespace avx2 {
extern const Core core;
}
namespace avx512 {
extern const Core core;
}
#endif

// All cores there are, best first.
inline std::vector<const Core*> compiled_cores() {
    return {
#ifdef HOYER_X86
        &avx512::core, &avx2::core,
#endif
        &baseline::core};
}

// The cores that run here, best first.
inline std::vector<const Core*> available_cores() {
    std::vector<const Core*> cores;
#ifdef HOYER_X86
    __builtin_cpu_init();
    // All that x86-64-v3 and x86-64-v4 allow the compiler to use.
    const bool avx2_runs = __builtin_cpu_supports("x86-64-v3");
    const bool avx512_runs = __builtin_cpu_supports("x86-64-v4");
    if (avx512_runs) cores.push_back(&avx512::core);
    if (avx2_runs) cores.push_back(&avx2::core);
#endif
    cores.push_back(&baseline::core);
    return cores;
}

}  // namespace hoyer
