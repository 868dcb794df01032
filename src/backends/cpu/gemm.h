// The multiplication itself: which kernel, how much scratch, run, explain. Pure of threads' and
// streams' ownership.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "backends/cpu/cpu_features.h"
#include "backends/cpu/layout.h"
#include "core/backend.h"
#include "core/tasks.h"

namespace metal_marlin::cpu {

struct KernelRow;  // kernels.h

/// How one product will run. Depends on the features, the problem's types and M only.
struct GemmPlan {
  const KernelRow* row = nullptr;
  int64_t m_block = 0;            // rows of A prepared and multiplied at a time
  uint64_t activation_bytes = 0;  // scratch for prepared activations of m_block rows
  uint64_t output_bytes = 0;      // scratch for sums of two-input epilogues
  int64_t k_parts = 1;            // parts of K that are multiplied on their own
  uint64_t part_bytes = 0;        // scratch for their sums

  uint64_t bytes() const;  // of scratch: all, each on cache lines of its own
};

/// MARLIN_E_UNSUPPORTED with the reason, or a plan. `kernel_override`: the one to take, or empty.
Result<GemmPlan> plan_gemm(const GemmProblem& problem, int64_t m, const CpuFeatures& features,
                           std::string_view kernel_override);
/// The plan that needs the most scratch for M up to max_m.
Result<GemmPlan> largest_plan(const GemmProblem& problem, int64_t max_m,
                              const CpuFeatures& features, std::string_view kernel_override);
/// Scratch bytes for these products run together.
uint64_t scratch_bytes(std::span<const GemmPlan> plans);
/// Runs them; scratch is 64-byte aligned and holds scratch_bytes(). An A that several share (same
/// data, shape, stride, dtype, same preparation) is prepared once.
void run_gemm(std::span<const GemmPlan> plans, std::span<const GemmProblem> problems,
              std::span<std::byte> scratch, TaskRunner& runner);
/// "kernel: NAME\n" and then "key: value\n" lines with the reason for the choice.
std::string explain_gemm(const GemmPlan& plan, const GemmProblem& problem,
                         const CpuFeatures& features);

}  // namespace metal_marlin::cpu
