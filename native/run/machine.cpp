// The processors and caches of this machine, as far as this process may use them.
#include "run/machine.hpp"

#if defined(__linux__)
#include <sched.h>
#endif

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>
#include <thread>
#include <vector>

namespace hoyer {
namespace {

// How many processors the runtime that a group has in a period keeps busy; 0 without a limit ("max", or -1).
double quotient_of(std::istream& quota, std::istream& period) {
    double runtime = 0, time = 0;
    return quota >> runtime && period >> time && runtime > 0 && time > 0 ? runtime / time : 0;
}

// The limit that one group has by the files in its folder, which may not be there.
double limit_in(const std::string& folder) {
    if (std::ifstream both(folder + "/cpu.max"); both) return quotient_of(both, both);  // version 2
    std::ifstream quota(folder + "/cpu.cfs_quota_us"), period(folder + "/cpu.cfs_period_us");
    return quotient_of(quota, period);
}

// The least limit of a group and of those that it is part of. In a container the path may be the host's, of which only
// the top is there.
double least_limit(const std::string& tree, std::string path) {
    double least = 0;
    while (true) {
        const double limit = limit_in(tree + path);
        if (limit > 0 && (least == 0 || limit < least)) least = limit;
        if (path.empty()) return least;
        path.erase(std::min(path.rfind('/'), path.size()));
    }
}

// Whether "cpu" is among names with commas between.
bool has_time(const std::string& controllers) {
    std::istringstream names(controllers);
    for (std::string name; std::getline(names, name, ',');)
        if (name == "cpu") return true;
    return false;
}

std::size_t affinity() {
#if defined(__linux__)
    cpu_set_t mine;
    if (sched_getaffinity(0, sizeof mine, &mine) == 0) return static_cast<std::size_t>(CPU_COUNT(&mine));
#endif
    return std::max(1u, std::thread::hardware_concurrency());
}

}  // namespace

std::size_t group_processors(const std::string& root) {
    const std::string mounted = root + "/sys/fs/cgroup";
    double least = 0;
    // Lines are number:controllers:path. Version 2 names no controllers; in version 1 several may share a tree, which
    // goes by the names of all, or of each.
    std::ifstream groups(root + "/proc/self/cgroup");
    for (std::string number, controllers, path;
         std::getline(groups, number, ':') && std::getline(groups, controllers, ':') && std::getline(groups, path);) {
        if (!controllers.empty() && !has_time(controllers)) continue;
        for (const std::string& tree :
             controllers.empty() ? std::vector<std::string>{""} : std::vector<std::string>{"/cpu", "/" + controllers}) {
            const double limit = least_limit(mounted + tree, path);
            if (limit > 0 && (least == 0 || limit < least)) least = limit;
        }
    }
    return static_cast<std::size_t>(std::ceil(least));
}

std::size_t processors() {
    // Files are read once: threads are counted more often than a container is given another quota.
    static const std::size_t granted = group_processors();
    return granted ? std::min(granted, affinity()) : affinity();
}

std::size_t last_level_cache() {
    static const std::size_t bytes = [] {
        // What the kernel says; the C library adds up caches that one core does not reach.
        std::size_t largest = 0;
        for (int level = 2; level < 5; ++level) {
            std::ifstream file("/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(level) + "/size");
            std::size_t size = 0;
            char unit = 'K';
            if (file >> size >> unit) largest = std::max(largest, size << (unit == 'M' ? 20 : 10));
        }
        return largest ? largest : std::size_t{32} << 20;
    }();
    return bytes;
}

}  // namespace hoyer
