// Products as the boundary hands them to a backend: with the backend's own plans.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/backend.h"

namespace metal_marlin {

/// Products without plans, for functions that read the problems only.
inline std::vector<PlannedGemm> without_plans(std::span<const GemmProblem> problems) {
  std::vector<PlannedGemm> products(problems.size());
  for (size_t i = 0; i < problems.size(); ++i) products[i].problem = problems[i];
  return products;
}

inline Result<std::vector<PlannedGemm>> planned(Backend& backend, std::span<const GemmProblem> problems) {
  std::vector<PlannedGemm> products = without_plans(problems);
  for (PlannedGemm& product : products) {
    MARLIN_ASSIGN(product.plan, backend.plan(product.problem));
  }
  return products;
}

inline Status plan_and_run(Backend& backend, BackendStream* stream, std::span<const GemmProblem> problems) {
  MARLIN_ASSIGN(const std::vector<PlannedGemm> products, planned(backend, problems));
  return backend.gemm(stream, products);
}
inline Status plan_and_run(Backend& backend, BackendStream* stream, const GemmProblem& problem) {
  return plan_and_run(backend, stream, {&problem, 1});
}

inline Result<uint64_t> plan_and_prepare(Backend& backend, BackendStream* stream, std::span<const GemmProblem> problems,
                                         int64_t max_m) {
  MARLIN_ASSIGN(const std::vector<PlannedGemm> products, planned(backend, problems));
  return backend.prepare(stream, products, max_m);
}

inline Result<std::string> plan_and_explain(Backend& backend, const GemmProblem& problem) {
  MARLIN_ASSIGN(const std::vector<PlannedGemm> products, planned(backend, {&problem, 1}));
  return backend.explain(products.front());
}

}  // namespace metal_marlin
