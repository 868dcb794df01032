#include "core/usable_threads.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <thread>

#include "base/system.h"

namespace metal_marlin {
namespace {

/// ceil(quota / period), or 0 if either is absent or means "unlimited".
uint32_t ratio(int64_t quota, int64_t period) {
  if (quota <= 0 || period <= 0) return 0;
  return static_cast<uint32_t>(
      std::min<int64_t>(quota / period + (quota % period != 0), UINT32_MAX));
}

uint32_t limit_v2(const std::string& folder) {
  std::ifstream file(folder + "/cpu.max");  // "200000 100000" or "max 100000"
  int64_t quota = 0, period = 0;
  file >> quota >> period;
  return file ? ratio(quota, period) : 0;
}

uint32_t limit_v1(const std::string& folder) {
  std::ifstream quota_file(folder + "/cpu.cfs_quota_us"),
      period_file(folder + "/cpu.cfs_period_us");
  int64_t quota = 0, period = 0;  // -1: unlimited
  quota_file >> quota;
  period_file >> period;
  return quota_file && period_file ? ratio(quota, period) : 0;
}

/// The lower of two limits, of which 0 is none.
uint32_t lower(uint32_t a, uint32_t b) {
  if (a == 0 || b == 0) return std::max(a, b);
  return std::min(a, b);
}

/// The least limit of `path` and all its ancestors. A container may see a path that is not mounted;
/// its root then has the limit.
uint32_t walk_up(const std::string& mount, std::string_view path,
                 uint32_t (*limit)(const std::string&)) {
  uint32_t least = 0;
  while (true) {
    while (!path.empty() && path.back() == '/') path.remove_suffix(1);
    least = lower(least, limit(mount + std::string(path)));
    if (path.empty()) return least;
    path = path.substr(0, path.rfind('/') + 1);
  }
}

bool lists_cpu(std::string_view controllers) {
  while (!controllers.empty()) {
    const size_t comma = std::min(controllers.find(','), controllers.size());
    if (controllers.substr(0, comma) == "cpu") return true;
    controllers.remove_prefix(std::min(comma + 1, controllers.size()));
  }
  return false;
}

}  // namespace

uint32_t cgroup_cpu_limit(std::string_view self, const std::string& mount) {
  uint32_t least = 0;
  while (!self.empty()) {  // lines "hierarchy:controllers:path"
    const size_t end = std::min(self.find('\n'), self.size());
    const std::string_view line = self.substr(0, end);
    self.remove_prefix(std::min(end + 1, self.size()));
    const size_t first = line.find(':'),
                 second = first == std::string_view::npos ? first : line.find(':', first + 1);
    if (second == std::string_view::npos) continue;
    const std::string_view controllers = line.substr(first + 1, second - first - 1),
                           path = line.substr(second + 1);
    if (controllers.empty()) {
      least = lower(least, walk_up(mount, path, limit_v2));
    } else if (lists_cpu(controllers)) {
      // The folder has the names of its controllers in either order, with links from each name.
      least = lower(least, walk_up(mount + "/cpu", path, limit_v1));
    }
  }
  return least;
}

uint32_t usable_threads() {
  uint32_t count = system::affinity_count();
  if (count == 0) count = std::max(1u, std::thread::hardware_concurrency());
  std::ifstream file("/proc/self/cgroup");
  const std::string self{std::istreambuf_iterator<char>(file), {}};
  return std::max(1u, lower(count, cgroup_cpu_limit(self, "/sys/fs/cgroup")));
}

}  // namespace metal_marlin
