// How a product will run: which kernel, how much scratch memory.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "backends/cpu/cpu_features.h"
#include "backends/cpu/layout.h"
#include "core/backend.h"

namespace metal_marlin::cpu {

/// What lies one after another in scratch memory begins on cache lines.
constexpr uint64_t aligned(uint64_t bytes) {
  return (bytes + Block::kAlign - 1) / Block::kAlign * Block::kAlign;
}

struct KernelRow;  // kernels.h

/// What the choice of a kernel depends on besides the problem.
struct PlanRules {
  const CpuFeatures& features;
  std::string_view forced{};  ///< the kernel to take, or empty
};

/// How one product will run. Depends on the rules, the problem's types and M only.
struct GemmPlan {
  const KernelRow* row = nullptr;
  int64_t m_block = 0;            // rows of A prepared and multiplied at a time
  uint64_t activation_bytes = 0;  // scratch for prepared activations of m_block rows
  uint64_t output_bytes = 0;      // scratch for sums of two-input epilogues
  int64_t k_parts = 1;            // parts of K that are multiplied on their own
  uint64_t part_bytes = 0;        // scratch for their sums

  uint64_t bytes() const;  // of scratch: all, each on cache lines of its own
};

/// MARLIN_E_UNSUPPORTED with the reason, or a plan.
Result<GemmPlan> plan_gemm(const GemmProblem& problem, int64_t m, const PlanRules& rules);
/// The plan that needs the most scratch for M up to max_m.
Result<GemmPlan> largest_plan(const GemmProblem& problem, int64_t max_m, const PlanRules& rules);
/// "kernel: NAME\n" and then "key: value\n" lines with the reason for the choice.
std::string explain_gemm(const GemmPlan& plan, const GemmProblem& problem, const PlanRules& rules);

}  // namespace metal_marlin::cpu
