// Measures which kernel is fastest for a class of products on this processor.
#pragma once

#include <optional>
#include <span>

#include "backends/cpu/plan.h"
#include "base/memory.h"
#include "core/tasks.h"
#include "core/tuner.h"

namespace metal_marlin::cpu {

/// The threads and memory of measurements.
struct TuneBench {
  const CpuFeatures& features;
  Allocator allocator;  ///< of operands and scratch
  TaskRunner& runner;
  Stopwatch& stopwatch;
};

/// Measures the kernels that may serve plain products, on activations of its own. A MeasureClass:
/// see core/tuner.h.
Result<std::optional<KernelChoice>> measure_class(const TuneBench& bench,
                                                  std::span<const GemmProblem> alike, int64_t m,
                                                  double deadline);

}  // namespace metal_marlin::cpu
