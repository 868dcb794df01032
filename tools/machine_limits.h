// The limits of this machine: reading memory, and each instruction that multiplies. Every speed is
// compared with the limits of the same run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "metal_marlin/metal_marlin.h"
#include "read_kernels.h"

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

/// The file of the architecture defines this function (machine_limits_x86.cc,
/// machine_limits_arm.cc, machine_limits_other.cc). It returns only loops that this processor can
/// run.
std::vector<DotLoop> arch_dot_loops();

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
  /// quarter of free memory. The constructor races all read kernels, and large against small pages,
  /// and takes the fastest, which needs about half a second.
  explicit Limits(unsigned threads);

  unsigned threads() const { return threads_; }
  /// How memory is read: the kernel, and the pages if there was a choice.
  std::string reading() const { return kernel_->name + memory_.pages; }
  /// Bytes per second of reading the next 64 MB.
  double read_sample();
  /// Operations per second of all threads together, over about 2 ms.
  double dot_sample(const DotLoop& loop);

 private:
  /// Mapped memory, filled with random bytes by the threads that will read it.
  struct Memory {
    Memory(size_t bytes, unsigned threads, bool large_pages);
    ~Memory();
    Memory(Memory&& other) noexcept { swap(other); }
    Memory& operator=(Memory&& other) noexcept { return swap(other), *this; }
    void swap(Memory& other) noexcept;

    std::byte* begin = nullptr;
    size_t bytes = 0, at = 0;  ///< at: where the next sample begins
    std::string pages;         ///< ", large pages"; "" where there is no choice
  };

  double sample(const ReadKernel& kernel, Memory& memory) const;

  unsigned threads_;
  size_t piece_;
  const ReadKernel* kernel_;
  Memory memory_;
};

/// The median; 0 if there are no values.
double median(std::vector<double> values);

}  // namespace metal_marlin::tools
