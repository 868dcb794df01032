// Products that run together, as planned. Pure of threads' and streams' ownership.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "backends/cpu/jobs.h"
#include "backends/cpu/plan.h"
#include "core/backend.h"
#include "core/tasks.h"

namespace metal_marlin::cpu {

/// Scratch bytes for so many products run together, whose plans need `plan_bytes` in all.
uint64_t scratch_bytes(size_t products, uint64_t plan_bytes);
/// Scratch bytes for the plain products among these run together: those with rows and without
/// routing, whose plan is a GemmPlan.
uint64_t scratch_bytes(std::span<const PlannedGemm> products);
/// Runs the plain products among these; scratch is 64-byte aligned and holds scratch_bytes(). An A
/// that several share (same data, shape, stride, dtype, same preparation) is prepared once.
void run_gemm(std::span<const PlannedGemm> products, std::span<std::byte> scratch,
              const Executor& on);

}  // namespace metal_marlin::cpu
