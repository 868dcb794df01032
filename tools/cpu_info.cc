#include "cpu_info.h"

#include <fmt/core.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <string_view>
#include <thread>

#if defined(__APPLE__)
#include <sys/sysctl.h>
#endif

#include "platform.h"

namespace metal_marlin::tools {

#if defined(__APPLE__)
namespace {

size_t sysctl_size(const char* name) {
  uint64_t value = 0;
  size_t bytes = sizeof value;
  return sysctlbyname(name, &value, &bytes, nullptr, 0) == 0 ? static_cast<size_t>(value) : 0;
}

}  // namespace

void describe(CpuInfo& info) {
  char text[128] = "";
  size_t bytes = sizeof text;
  if (sysctlbyname("machdep.cpu.brand_string", text, &bytes, nullptr, 0) == 0) info.model = text;
  for (const auto& [name, key] : {std::pair{"asimddp", "hw.optional.arm.FEAT_DotProd"},
                                  std::pair{"i8mm", "hw.optional.arm.FEAT_I8MM"},
                                  std::pair{"bf16", "hw.optional.arm.FEAT_BF16"}}) {
    if (sysctl_size(key) & 1) info.features.emplace_back(name);
  }
  for (const auto& [name, key] : {std::pair{"L1d", "hw.perflevel0.l1dcachesize"},
                                  std::pair{"L2", "hw.perflevel0.l2cachesize"}}) {
    if (const size_t size = sysctl_size(key)) info.caches.push_back({name, size, 0});
  }
}
#elif !defined(_WIN32)  // whose part is in platform_windows.cc
namespace {

// The features by which the kernels of x86 and arm64 are chosen, with the names of /proc/cpuinfo.
constexpr std::string_view kInteresting[] = {
    "sse4_2",   "avx",      "f16c",     "fma",         "avx2",        "avx_vnni",
    "avx512f",  "avx512bw", "avx512vl", "avx512_vnni", "avx512_bf16", "avx512vbmi",
    "amx_int8", "amx_bf16", "asimd",    "fphp",        "asimdhp",     "asimddp",
    "i8mm",     "bf16",     "sve",      "sve2",
};

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

/// Parses sizes in the form of sysfs: "32K", "1024K", "32M".
size_t parse_size(const std::string& text) {
  std::istringstream in(text);
  size_t value = 0;
  char unit = 0;
  in >> value >> unit;
  return value << (unit == 'K' ? 10 : unit == 'M' ? 20 : unit == 'G' ? 30 : 0);
}

/// Counts the CPUs in a list such as "0-3,8,10-11".
unsigned count_list(const std::string& text) {
  std::istringstream in(text);
  unsigned count = 0, first = 0, last = 0;
  for (std::string part; std::getline(in, part, ',');) {
    std::istringstream range(part);
    char dash = 0;
    if (!(range >> first)) continue;
    if (!(range >> dash >> last))
      ++count;
    else if (last >= first)
      count += last - first + 1;
  }
  return count;
}

}  // namespace

void describe(CpuInfo& info) {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line) && (!line.empty() || info.features.empty());) {
    const size_t colon = line.find(": ");
    if (colon == std::string::npos) continue;
    const std::string value = line.substr(colon + 2);
    if (line.starts_with("model name") && info.model.empty()) info.model = value;
    if (!line.starts_with("flags") && !line.starts_with("Features")) continue;
    std::istringstream words(value);
    const std::set<std::string> have(std::istream_iterator<std::string>(words), {});
    for (std::string_view feature : kInteresting) {
      if (have.contains(std::string(feature))) info.features.emplace_back(feature);
    }
  }
  for (int i = 0;; ++i) {
    const std::string folder = fmt::format("/sys/devices/system/cpu/cpu0/cache/index{}/", i);
    const size_t size = parse_size(first_line(folder + "size"));
    if (size == 0) return;
    const std::string type = first_line(folder + "type");
    if (type == "Instruction") continue;
    info.caches.push_back(
        {fmt::format("L{}{}", first_line(folder + "level"), type == "Data" ? "d" : ""), size,
         count_list(first_line(folder + "shared_cpu_list"))});
  }
}
#endif

size_t CpuInfo::last_level_cache() const {
  size_t largest = 0;
  for (const CacheInfo& cache : caches) largest = std::max(largest, cache.bytes);
  return largest ? largest : size_t{32} << 20;
}

const CpuInfo& cpu_info() {
  static const CpuInfo info = [] {
    CpuInfo made;
    made.cpus = std::max(1u, std::thread::hardware_concurrency());
    describe(made);
    if (made.model.empty()) made.model = "unknown processor";
    return made;
  }();
  return info;
}

size_t free_memory() {
  size_t bytes = size_t{1} << 30;
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    constexpr std::string_view kName = "MemAvailable:";
    if (!line.starts_with(kName)) continue;
    std::istringstream value(line.substr(kName.size()));
    size_t kilobytes = 0;
    if (value >> kilobytes) bytes = kilobytes << 10;
  }
  return std::min(bytes, memory_limit());
}

}  // namespace metal_marlin::tools
