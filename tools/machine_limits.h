// What this machine can do at most: reading memory, and each instruction that multiplies. Every
// speed is judged by these, measured in the same run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "metal_marlin/metal_marlin.h"

namespace metal_marlin::tools {

/// Threads that the process may use, as the library counts them: the affinity mask, capped by the
/// CPU quotas of its cgroup and of all above that; at least 1. Failure when the library cannot be
/// asked.
unsigned usable_threads();

/// A loop of one multiplying instruction over registers, in enough independent chains to hide its
/// latency.
struct DotLoop {
  const char* name;    ///< the instruction, "vpdpbusd"; with ".ymm" for the 32-byte form
  int64_t operations;  ///< multiplications and additions, counted apart, of one round
  void (*run)(int64_t rounds);
};

/// Reads [p, p + bytes) once and returns something that depends on every byte. p is 64-byte
/// aligned, bytes % 1024 == 0.
using ReadKernel = uint64_t (*)(const std::byte* p, size_t bytes);

/// Defined by the file of the architecture (machine_limits_x86.cc, machine_limits_arm.cc,
/// machine_limits_other.cc); only what this processor has.
std::vector<DotLoop> arch_dot_loops();
ReadKernel arch_read_kernel();  ///< the widest; nullptr: the portable one

/// Every loop that runs here, the portable ones last. METAL_MARLIN_ISA plays no part: these are the
/// machine's limits.
std::span<const DotLoop> dot_loops();
/// The loop with this name, or nullptr.
const DotLoop* find_dot_loop(const std::string& name);

/// The instruction that a device with this ISA name ("avx512-vnni-bf16") multiplies with: by its
/// peak a kernel is judged.
std::string instruction_for(const std::string& isa, marlin_compute compute,
                            marlin_dtype activations);

/// Measures the limits, one short sample a call, so that samples can be taken in turn with the
/// kernels that they judge.
class Limits {
 public:
  /// Reading walks through max(512 MB, 8 last-level caches) of random bytes, but never more than a
  /// quarter of free memory.
  explicit Limits(unsigned threads);
  ~Limits();
  Limits(const Limits&) = delete;
  Limits& operator=(const Limits&) = delete;

  unsigned threads() const { return threads_; }
  /// Bytes a second of reading the next 64 MB.
  double read_sample();
  /// Operations a second of all threads together, over about 2 ms.
  double dot_sample(const DotLoop& loop);

 private:
  unsigned threads_;
  std::byte* memory_ = nullptr;
  size_t bytes_ = 0, piece_ = 0, at_ = 0;
  ReadKernel read_;
};

/// The median; 0 when there are none.
double median(std::vector<double> values);

}  // namespace metal_marlin::tools
