// What Linux's control groups grant to this process: declarations only; see groups.cpp.
#pragma once

#include <cstddef>
#include <string>

namespace hoyer {

// For how many processors the control groups give this process time, rounded up; 0 if there is no limit. `root` is
// where /proc and /sys are.
std::size_t group_processors(const std::string& root = "");

}  // namespace hoyer
