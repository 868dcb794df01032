// How many threads this process may usefully run.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace metal_marlin {

/// The processors of the affinity mask, or fewer if a cgroup limits CPU time; at least 1.
uint32_t usable_threads();

/// The CPU time that cgroups v1 and v2 leave to a process, in processors, rounded up; 0: no limit.
/// `self` is the text of /proc/self/cgroup, and `mount` is the folder where cgroups are mounted
/// (/sys/fs/cgroup). Limits of all ancestors count.
uint32_t cgroup_cpu_limit(std::string_view self, const std::string& mount);

}  // namespace metal_marlin
