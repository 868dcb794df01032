// Ways of reading memory. Which of them is fastest depends on the processor, so all of them are
// measured, and the fastest is the limit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace metal_marlin::tools {

/// Reads [p, p + bytes) once and returns a value that depends on every byte. p is aligned to 64
/// bytes, and bytes % 4096 == 0. Prefetches reach at most 16 KB beyond the end.
struct ReadKernel {
  std::string name;  ///< "64-byte loads, 4 streams, prefetched 2 KB ahead"
  uint64_t (*run)(const std::byte* p, size_t bytes);
};

/// The name of a kernel that loads `width` bytes at once from `streams` places in turn. With
/// `ahead` it prefetches this many bytes ahead, `once` if no cache shall keep them.
std::string read_kernel_name(size_t width, size_t streams, size_t ahead, bool once);

/// The kernels of the architecture (machine_limits_x86.cc, machine_limits_arm.cc,
/// machine_limits_other.cc) that this processor can run; none where the portable ones are as good.
std::vector<ReadKernel> arch_read_kernels();
/// The kernels that are measured here; at least one.
const std::vector<ReadKernel>& read_kernels();

/// Races `count` candidates: takes rate(i) of each in turn, round by round, and leaves out those
/// that are far behind. Returns the one with the largest median; of equals, the first. The race
/// ends after `rounds` rounds, or after the first round that finished(). count and rounds are at
/// least 1.
size_t fastest(size_t count, int rounds, const std::function<double(size_t)>& rate,
               const std::function<bool()>& finished);

}  // namespace metal_marlin::tools
