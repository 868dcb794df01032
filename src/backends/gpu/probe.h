// Checks whether a kernel computes right on this device. Before a kernel serves, one of its small
// products is compared with the same product in double. This finds another layout of fragments,
// flushed subnormals, sums in 16 bits, and decoders that a compiler broke.
#pragma once

#include "backends/gpu/kernels.h"
#include "backends/gpu/memory.h"
#include "backends/gpu/plan.h"
#include "backends/gpu/stream.h"
#include "base/log.h"
#include "core/tasks.h"

namespace metal_marlin::gpu {

/// The device and memory of a probe.
struct ProbeBench {
  const Policy& policy;
  device::Device& device;
  Memory& memory;
  KernelCache& kernels;
  StreamCache& streams;
  TaskRunner& runner;
  const Logger& logger;
};

/// Runs `kernel` on weights like `layout` and returns the result; a bad kernel is logged. A kernel
/// that the device's library does not have, or that does not fit the device, is bad, too. Other
/// errors (no memory, device lost) say nothing about the kernel and are returned.
Result<KernelHealth::State> probe(const ProbeBench& bench, const ProductKernel& kernel,
                                  ActivationKind activation, const RowBlockLayout& layout);

}  // namespace metal_marlin::gpu
