#include "neighbors.h"

#include <algorithm>

#if defined(__linux__)
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <string>
#endif

namespace metal_marlin::tools {
namespace {

#if defined(__linux__)

/// The seconds that the processors of this process have not been idle since the system started.
double busy_seconds() {
  cpu_set_t usable;
  CPU_ZERO(&usable);
  if (sched_getaffinity(0, sizeof usable, &usable) != 0) return 0;
  std::ifstream stat("/proc/stat");
  double ticks = 0;
  for (std::string line; std::getline(stat, line);) {
    std::istringstream words(line);
    std::string name;
    double user = 0, nice = 0, system = 0, idle = 0, wait = 0, irq = 0, softirq = 0, steal = 0;
    words >> name >> user >> nice >> system >> idle >> wait >> irq >> softirq >> steal;
    const bool numbered = name.size() > 3 && name.starts_with("cpu");
    if (!words || !numbered || name.find_first_not_of("0123456789", 3) != std::string::npos)
      continue;
    const int number = std::stoi(name.substr(3));
    if (number >= CPU_SETSIZE || !CPU_ISSET(static_cast<size_t>(number), &usable)) continue;
    ticks += user + nice + system + irq + softirq + steal;
  }
  return ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
}

double own_seconds() {
  rusage usage{};
  if (getrusage(RUSAGE_SELF, &usage) != 0) return 0;
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

#else

double busy_seconds() { return 0; }
double own_seconds() { return 0; }

#endif

}  // namespace

Neighbors::Neighbors()
    : busy_(busy_seconds()), own_(own_seconds()), start_(std::chrono::steady_clock::now()) {}

double Neighbors::processors() const {
  const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - start_;
  const double others = busy_seconds() - busy_ - (own_seconds() - own_);
  return wall.count() > 0 ? std::max(0.0, others / wall.count()) : 0;
}

}  // namespace metal_marlin::tools
