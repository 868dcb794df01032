#include "tuned.h"

#include <vector>

#include "workload.h"

namespace metal_marlin::tools {

marlin_gemm_desc product_without_data(const marlin_weights* weights, int64_t m,
                                      const TunedProduct& product) {
  const marlin_layer_info info = info_of(weights);
  auto desc = make<marlin_gemm_desc>();
  desc.weights = weights;
  desc.compute = product.compute;
  desc.a.dtype = desc.c.dtype = product.dtype;
  desc.a.rows = desc.c.rows = m;
  desc.a.cols = info.k;
  desc.c.cols = info.n;
  desc.a.memory = desc.c.memory = MARLIN_MEM_BUFFER;
  if (product.top_k == 0) return desc;
  desc.expert_ids.rows = m;
  desc.expert_ids.cols = product.top_k;
  desc.expert_ids.dtype = MARLIN_I32;
  desc.expert_ids.memory = MARLIN_MEM_BUFFER;
  (product.summed ? desc.a : desc.c).rows = m * product.top_k;
  if (!product.summed) return desc;
  desc.expert_scales = desc.expert_ids;
  desc.expert_scales.dtype = MARLIN_F32;
  static char present;  // scales without a pointer are absent, and this one is never read
  desc.expert_scales.data = &present;
  return desc;
}

void tune(std::span<const Weights> alike, int64_t max_m, const TunedProduct& product) {
  std::vector<marlin_gemm_desc> descs;
  std::vector<const marlin_gemm_desc*> pointers;
  descs.reserve(alike.size());
  pointers.reserve(alike.size());
  for (const Weights& weights : alike)
    descs.push_back(product_without_data(weights.get(), 1, product));
  for (const marlin_gemm_desc& desc : descs) pointers.push_back(&desc);
  auto error = make<marlin_error>();
  check(marlin_prepare(nullptr, pointers.data(), static_cast<uint32_t>(pointers.size()), max_m,
                       nullptr, &error),
        error, "cannot tune");
}

std::vector<int64_t> rows_of_classes(int64_t max_m) {
  std::vector<int64_t> rows;
  for (int64_t m = 1; m < max_m; m = m < 8 ? m + 1 : 2 * m) rows.push_back(m);
  rows.push_back(max_m);
  return rows;
}

std::optional<Tuned> tuned(const std::string& explanation) {
  if (explained(explanation, "tuned") != "yes") return std::nullopt;
  return Tuned{explained(explanation, "usual_kernel"), explained(explanation, "kernel"),
               explained(explanation, "k_splits"), std::stod(explained(explanation, "usual_ns")),
               std::stod(explained(explanation, "tuned_ns"))};
}

}  // namespace metal_marlin::tools
