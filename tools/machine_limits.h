// The limits of this machine: reading memory, and each instruction that multiplies. Every speed is
// compared with the limits of the same run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "metal_marlin/metal_marlin.h"

namespace metal_marlin::tools {

/// The threads that the process may use, as the library counts them: the affinity mask, limited by
/// the CPU quotas of its cgroup and of all ancestors; at least 1. Failure if the library cannot
/// tell.
unsigned usable_threads();

/// A loop of one multiplying instruction over registers, in enough independent chains to hide its
/// latency.
struct DotLoop {
  const char* name;    ///< the instruction, "vpdpbusd"; with ".ymm" for the 32-byte form
  int64_t operations;  ///< multiplications plus additions of one round
  void (*run)(int64_t rounds);
};

/// Reads [p, p + bytes) once and returns a value that depends on every byte. p is aligned to 64
/// bytes, and bytes % 1024 == 0.
using ReadKernel = uint64_t (*)(const std::byte* p, size_t bytes);

/// The file of the architecture defines these functions (machine_limits_x86.cc,
/// machine_limits_arm.cc, machine_limits_other.cc). They return only loops that this processor can
/// run.
std::vector<DotLoop> arch_dot_loops();
ReadKernel arch_read_kernel();  ///< the widest; nullptr: the portable one

/// Every loop that runs here, the portable loops last. METAL_MARLIN_ISA has no effect, because
/// these are limits of the machine.
std::span<const DotLoop> dot_loops();
/// The loop with this name, or nullptr.
const DotLoop* find_dot_loop(const std::string& name);

/// The instruction with which a device of this ISA name ("avx512-vnni-bf16") multiplies. Kernels
/// are compared with its peak.
std::string instruction_for(const std::string& isa, marlin_compute compute,
                            marlin_dtype activations);

/// Measures the limits, one short sample per call, so that samples of limits and of kernels can
/// alternate.
class Limits {
 public:
  /// Reading cycles through max(512 MB, 8 last-level caches) of random bytes, but never more than a
  /// quarter of free memory.
  explicit Limits(unsigned threads);
  ~Limits();
  Limits(const Limits&) = delete;
  Limits& operator=(const Limits&) = delete;

  unsigned threads() const { return threads_; }
  /// Bytes per second of reading the next 64 MB.
  double read_sample();
  /// Operations per second of all threads together, over about 2 ms.
  double dot_sample(const DotLoop& loop);

 private:
  unsigned threads_;
  std::byte* memory_ = nullptr;
  size_t bytes_ = 0, piece_ = 0, at_ = 0;
  ReadKernel read_;
};

/// The median; 0 if there are no values.
double median(std::vector<double> values);

}  // namespace metal_marlin::tools
