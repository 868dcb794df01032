// Packed weights of one context.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "api/context.h"
#include "api/handle.h"
#include "core/backend.h"

struct marlin_weights final : metal_marlin::api::Handle {
  static constexpr auto kKind = metal_marlin::api::HandleKind::weights;

  marlin_weights(marlin_context& of, metal_marlin::ExpertStack made, marlin_layout from,
                 std::string called)
      : Handle(kKind),
        context(of),
        experts(std::move(made)),
        layout(from),
        name(std::move(called)) {}

  const metal_marlin::api::ContextRef context;  ///< first: released after the packed memory
  const metal_marlin::ExpertStack experts;      ///< one or more
  const marlin_layout layout;                   ///< of the first part
  const std::string name;                       ///< of the first layer, or ""
};

namespace metal_marlin::api {

using Sources = std::vector<std::unique_ptr<WeightSource>>;

/// Part number i, of parts that are expert-major.
using ReadPart = std::function<Result<std::unique_ptr<WeightSource>>(size_t i)>;
/// Concatenates parts along N to one source per expert. Their number is a multiple of expert_count.
/// Experts must agree in everything except the group index of their columns and the tensor scales.
/// Parts are read until what `packer` would pack is out of proportion (formats/packed_budget.h).
Result<Sources> make_experts(Backend& packer, size_t part_count, uint32_t expert_count,
                             const ReadPart& read_part);

/// Writes the warning of a source, if any, to the host's log.
void warn(const marlin_context& context, const WeightSource& source);

constexpr bool is_known(marlin_gptq_zero_f zero_f) {
  return zero_f >= MARLIN_GPTQ_ZERO_F_AUTO && zero_f <= MARLIN_GPTQ_ZERO_F_PLUS_ONE;
}

/// Checks that `weights` is a live handle, and of `context` unless `context` is null.
Status check_weights(const marlin_weights* weights, const marlin_context* context);
/// The numbers of marlin_pack_desc::column_norms and similar members, called `name` in messages:
/// [1, k] F32, or none if absent. The caller keeps them. Without a context (NULL), they are in
/// plain host memory.
Result<std::span<const float>> column_norms_of(const marlin_matrix& norms, int64_t k,
                                               const char* name, const marlin_context* context);
/// A length for a 32-bit field of marlin_layer_info.
constexpr uint32_t saturate_u32(int64_t v) {
  return v < INT64_C(0xffffffff) ? static_cast<uint32_t>(v) : UINT32_MAX;
}

}  // namespace metal_marlin::api
