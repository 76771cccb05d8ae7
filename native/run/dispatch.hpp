// Which cores were compiled, and which of them this processor runs.
#pragma once

#include "jobs.hpp"
#include "run/machine.hpp"

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
#ifdef HOYER_X86
    return {&avx512::core, &avx2::core, &baseline::core};
#else
    return {&baseline::core};
#endif
}

// The cores that run here, best first.
inline std::vector<const Core*> available_cores() {
#ifdef HOYER_X86
    if (instructions() == Instructions::avx512) return compiled_cores();
    if (instructions() == Instructions::avx2) return {&avx2::core, &baseline::core};
#endif
    return {&baseline::core};
}

}  // namespace hoyer
