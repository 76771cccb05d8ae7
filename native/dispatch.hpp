// Which cores were compiled, and which of them this processor runs.
#pragma once

#include <vector>

#include "jobs.hpp"

namespace hoyer {

namespace baseline { extern const Core core; }
#ifdef HOYER_X86
namespace avx2 { extern const Core core; }
namespace avx512 { extern const Core core; }
#endif

// The cores that run here, best first.
inline std::vector<const Core*> available_cores() {
    std::vector<const Core*> cores;
#ifdef HOYER_X86
    __builtin_cpu_init();
    const bool avx2_runs = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2") &&
                           __builtin_cpu_supports("fma") && __builtin_cpu_supports("popcnt");
    const bool avx512_runs = avx2_runs && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                             __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    if (avx512_runs) cores.push_back(&avx512::core);
    if (avx2_runs) cores.push_back(&avx2::core);
#endif
    cores.push_back(&baseline::core);
    return cores;
}

}  // namespace hoyer
