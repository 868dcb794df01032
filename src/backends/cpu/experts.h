// A mixture of experts: the routed rows of all tokens sorted by expert, each expert's rows one job,
// so that its weights are read once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "backends/cpu/jobs.h"
#include "backends/cpu/plan.h"
#include "core/backend.h"
#include "core/tasks.h"

namespace metal_marlin::cpu {

/// How much runs at a time. Depends on the problem's shapes and the number of tokens only, never on
/// the ids.
struct ExpertPlan {
  int64_t tokens = 0, routed_rows = 0, experts = 0;  ///< tokens at a time, and their routed rows
  uint64_t results_bytes = 0;  ///< of all routed rows' results, where scales sum them
  uint64_t wave_bytes = 0;     ///< for the jobs that run at once

  uint64_t bytes() const;
};

/// The part of a problem with routing that is one expert's, a plain product.
GemmProblem problem_of(const GemmProblem& problem, size_t expert);
/// MARLIN_E_UNSUPPORTED with the reason, or a plan; more tokens never need fewer bytes. The problem
/// has routing.
Result<ExpertPlan> plan_experts(const GemmProblem& problem, int64_t tokens, const PlanRules& rules);
/// Runs a problem with the plan of its tokens; scratch is 64-byte aligned and holds the plan's
/// bytes().
Status run_experts(const GemmProblem& problem, const ExpertPlan& plan, const PlanRules& rules,
                   std::span<std::byte> scratch, const Executor& on);
/// As explain_gemm(), of the expert that gets its share of the routed rows, and which kernel runs
/// how many rows.
Result<std::string> explain_experts(const GemmProblem& problem, const ExpertPlan& experts,
                                    const PlanRules& rules);

}  // namespace metal_marlin::cpu
