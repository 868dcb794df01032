// Products that run together, as planned. Pure of threads' and streams' ownership.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "backends/cpu/plan.h"
#include "core/backend.h"
#include "core/tasks.h"

namespace metal_marlin::cpu {

/// Scratch bytes for these products run together.
uint64_t scratch_bytes(std::span<const GemmPlan> plans);
/// Runs them; scratch is 64-byte aligned and holds scratch_bytes(). An A that several share (same
/// data, shape, stride, dtype, same preparation) is prepared once.
void run_gemm(std::span<const GemmPlan> plans, std::span<const GemmProblem> problems,
              std::span<std::byte> scratch, TaskRunner& runner);

}  // namespace metal_marlin::cpu
