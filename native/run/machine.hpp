// What the machine offers to this process: processors, and caches. Shared by all instruction sets: declarations only;
// see machine.cpp.
#pragma once

#include <cstddef>
#include <string>

namespace hoyer {

// The processors that this process may keep busy: those that it may run on, at the time of the call, and no more than
// its control groups give it time for.
std::size_t processors();

// The same limit of the control groups alone, rounded up; 0 if there is none. `root` is where /proc and /sys are.
std::size_t group_processors(const std::string& root = "");

// Bytes of the last-level cache.
std::size_t last_level_cache();

}  // namespace hoyer
