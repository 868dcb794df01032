// Measures which kernel is fastest for a class of products on this device.
#pragma once

#include <functional>
#include <optional>
#include <span>

#include "backends/gpu/kernels.h"
#include "backends/gpu/memory.h"
#include "backends/gpu/plan.h"
#include "backends/gpu/stream.h"
#include "core/tuner.h"

namespace metal_marlin::gpu {

/// The device and memory of measurements.
struct TuneBench {
  device::Device& device;
  Memory& memory;
  KernelCache& kernels;
  StreamCache& streams;
  Stopwatch& stopwatch;
  /// Without a profile and a forced kernel.
  PlanRules rules;
  /// Whether a kernel is known to compute right on this device; checks it if it must.
  std::function<Result<bool>(const ProductKernel& kernel, const GemmProblem& problem)> sound;
};

/// Measures the kernels that may serve, and then the parts of K and the teams of the fastest, on
/// activations of its own. A MeasureClass: see core/tuner.h.
Result<std::optional<KernelChoice>> measure_class(const TuneBench& bench,
                                                  std::span<const GemmProblem> alike, int64_t m,
                                                  double deadline);

}  // namespace metal_marlin::gpu
