// The limits of Linux's control groups, read from the files of the kernel.
#include "run/groups.hpp"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>
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
        const std::size_t slash = path.rfind('/');
        path.erase(slash == std::string::npos ? 0 : slash);
    }
}

// Whether "cpu" is among names with commas between.
bool has_time(const std::string& controllers) {
    std::istringstream names(controllers);
    for (std::string name; std::getline(names, name, ',');)
        if (name == "cpu") return true;
    return false;
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

}  // namespace hoyer
