// The processors, caches and instructions of this machine, as far as this process may use them.
#include "run/machine.hpp"

#if defined(__linux__)
#include <sched.h>
#include <sys/mman.h>

#include <fstream>
#include <string>

#include "run/groups.hpp"
#elif defined(__APPLE__)
#include <sys/sysctl.h>
#elif defined(_WIN32)
#define WIN32_LEAN_AND_MEAN
#define NOMINMAX
#include <windows.h>

#include <vector>
#endif

#if defined(__linux__) || defined(__APPLE__)
#include <pthread.h>
#endif

#if !defined(__wasm__)
#include <thread>
#endif

#if defined(HOYER_X86)
#include <cpuid.h>
#endif

#include <algorithm>
#include <cstdint>
#include <initializer_list>

namespace hoyer {
namespace {

// ---- processors ----

#if defined(__linux__)

std::size_t usable_processors() {
    // Files are read once: threads are counted more often than a container is given another quota.
    static const std::size_t granted = group_processors();
    cpu_set_t mine;
    const std::size_t allowed = sched_getaffinity(0, sizeof mine, &mine) == 0
                                    ? static_cast<std::size_t>(CPU_COUNT(&mine))
                                    : std::thread::hardware_concurrency();
    return granted ? std::min(granted, allowed) : allowed;
}

#elif defined(_WIN32)

std::size_t usable_processors() {
    DWORD_PTR mine = 0, all = 0;
    // A process of several groups of processors has no mask.
    if (GetProcessAffinityMask(GetCurrentProcess(), &mine, &all) && mine)
        return static_cast<std::size_t>(__builtin_popcountll(mine));
    return GetActiveProcessorCount(ALL_PROCESSOR_GROUPS);
}

#elif defined(__wasm__)

std::size_t usable_processors() { return 1; }

#else

std::size_t usable_processors() { return std::thread::hardware_concurrency(); }

#endif

// ---- the largest cache that one core reaches; 0 if nobody knows ----

#if defined(__linux__)

std::size_t largest_cache() {
    // What the kernel says; the C library adds up caches that one core does not reach.
    std::size_t largest = 0;
    for (int level = 2; level < 5; ++level) {
        std::ifstream file("/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(level) + "/size");
        std::size_t size = 0;
        char unit = 'K';
        if (file >> size >> unit) largest = std::max(largest, size << (unit == 'M' ? 20 : 10));
    }
    return largest;
}

#elif defined(__APPLE__)

std::size_t largest_cache() {
    // Apple's own processors name the second level of their fast cores, Intel's the third.
    std::size_t largest = 0;
    for (const char* name : {"hw.perflevel0.l2cachesize", "hw.l3cachesize", "hw.l2cachesize"}) {
        std::uint64_t size = 0;
        std::size_t length = sizeof size;
        if (sysctlbyname(name, &size, &length, nullptr, 0) == 0)
            largest = std::max(largest, static_cast<std::size_t>(size));
    }
    return largest;
}

#elif defined(_WIN32)

std::size_t largest_cache() {
    using Known = SYSTEM_LOGICAL_PROCESSOR_INFORMATION;
    DWORD length = 0;
    GetLogicalProcessorInformation(nullptr, &length);
    std::vector<Known> known(length / sizeof(Known));
    if (known.empty() || !GetLogicalProcessorInformation(known.data(), &length)) return 0;
    std::size_t largest = 0;
    for (const Known& one : known)
        if (one.Relationship == RelationCache) largest = std::max<std::size_t>(largest, one.Cache.Size);
    return largest;
}

#else

std::size_t largest_cache() { return 0; }

#endif

// ---- instructions ----

#if defined(HOYER_X86)

// What must be set in the registers that CPUID fills, and in XCR0, for all that x86-64-v3 and x86-64-v4 allow the
// compiler to use. The processor is asked itself: what stands behind __builtin_cpu_supports is not linked everywhere,
// and compilers that are in use do not know these levels.
constexpr unsigned bits(std::initializer_list<int> places) {
    unsigned all = 0;
    for (const int place : places) all |= 1u << place;
    return all;
}
// SSE3, SSSE3, FMA, CMPXCHG16B, SSE4.1, SSE4.2, MOVBE, POPCNT, OSXSAVE, AVX, F16C
constexpr unsigned v3_basic = bits({0, 9, 12, 13, 19, 20, 22, 23, 27, 28, 29});
constexpr unsigned v3_extended = bits({3, 5, 8});             // BMI1, AVX2, BMI2
constexpr unsigned v3_amd = bits({0, 5});                     // LAHF, LZCNT
constexpr unsigned v3_saved = bits({1, 2});                   // the halves of YMM
constexpr unsigned v4_extended = bits({16, 17, 28, 30, 31});  // AVX-512 F, DQ, CD, BW, VL
constexpr unsigned v4_saved = bits({1, 2, 5, 6, 7});          // masks and ZMM as well

bool has(unsigned found, unsigned wanted) { return (found & wanted) == wanted; }

Instructions found_instructions() {
    unsigned a = 0, b = 0, c = 0, d = 0, basic = 0, extended = 0, amd = 0;
    if (!__get_cpuid(1, &a, &b, &basic, &d) || !__get_cpuid_count(7, 0, &a, &extended, &c, &d) ||
        !__get_cpuid(0x80000001, &a, &b, &amd, &d))
        return Instructions::baseline;
    if (!has(basic, v3_basic) || !has(extended, v3_extended) || !has(amd, v3_amd)) return Instructions::baseline;
    unsigned saved = 0, above = 0;
    __asm__ volatile("xgetbv" : "=a"(saved), "=d"(above) : "c"(0));  // which registers the system keeps for us
    if (!has(saved, v3_saved)) return Instructions::baseline;
    return has(saved, v4_saved) && has(extended, v4_extended) ? Instructions::avx512 : Instructions::avx2;
}

#else

Instructions found_instructions() { return Instructions::baseline; }

#endif

}  // namespace

std::size_t processors() { return std::max<std::size_t>(1, usable_processors()); }

std::size_t last_level_cache() {
    static const std::size_t found = largest_cache(), bytes = found ? found : std::size_t{32} << 20;
    return bytes;
}

Instructions instructions() {
    static const Instructions found = found_instructions();
    return found;
}

void after_fork([[maybe_unused]] void (*in_child)()) {
#if defined(__linux__) || defined(__APPLE__)
    pthread_atfork(nullptr, nullptr, in_child);
#endif
}

void use_large_pages([[maybe_unused]] void* memory, [[maybe_unused]] std::size_t bytes) {
#if defined(__linux__)
    constexpr std::uintptr_t page = 4096;
    const auto begin = (reinterpret_cast<std::uintptr_t>(memory) + page - 1) / page * page;
    const auto end = (reinterpret_cast<std::uintptr_t>(memory) + bytes) / page * page;
    if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
#endif
}

}  // namespace hoyer
