// The processor as the operating system describes it, for people to read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace metal_marlin::tools {

struct CacheInfo {
  std::string name;    ///< "L1d", "L2", "L3"
  size_t bytes;        ///< of one
  unsigned shared_by;  ///< CPUs that share one; 0 unknown
};

struct CpuInfo {
  std::string model;
  std::vector<std::string> features;  ///< that matter to kernels, in the processor's own words
  std::vector<CacheInfo> caches;      ///< of the first CPU, smallest first
  unsigned cpus = 1;                  ///< online, whether or not this process may use them
  size_t last_level_cache() const;    ///< 32 MB if unknown
};

const CpuInfo& cpu_info();
/// The bytes that can be allocated without harm to other processes; 1 GiB if unknown.
size_t free_memory();

}  // namespace metal_marlin::tools
