// What plans depend on in packed weights. One plan serves several experts only if their keys are
// equal.
#pragma once

#include <cstdint>

#include "formats/weights.h"

namespace metal_marlin {

/// What the experts of one handle have in common: the numbers of a meta that say how codes, scales
/// and zeros are read. Tensor scales, the group index and the number of its groups may differ.
struct WeightKind {
  marlin_format format = MARLIN_FORMAT_NONE;
  int64_t n = 0, k = 0, group_size = 0;
  ScaleType scale_type = ScaleType::f16;
  ZeroKind zero_kind = ZeroKind::none;
  ScaleType zero_type = ScaleType::f16;  ///< of additive zeros
  bool sparse = false, gate_up_interleaved = false;

  WeightKind() = default;
  explicit WeightKind(const WeightMeta& meta)
      : format(meta.format),
        n(meta.n),
        k(meta.k),
        group_size(meta.group_size),
        scale_type(meta.scale_type),
        zero_kind(meta.zero_kind),
        zero_type(meta.zero_kind == ZeroKind::additive ? meta.zero_type : ScaleType::f16),
        sparse(meta.sparse),
        gate_up_interleaved(meta.gate_up_interleaved) {}
  bool operator==(const WeightKind&) const = default;
};

/// Everything of packed weights that a plan depends on.
struct PlanKey {
  WeightKind kind;
  int64_t slots = 0;       ///< padded length of K
  int32_t slot_group = 0;  ///< slots that share a scale
  bool has_index = false;  ///< there is a group index
  uint32_t own = 0;        ///< what else the plans of this backend depend on

  PlanKey() = default;
  PlanKey(const WeightMeta& meta, int64_t padded_k, int32_t group)
      : kind(meta), slots(padded_k), slot_group(group), has_index(!meta.group_index.empty()) {}
  bool operator==(const PlanKey&) const = default;
};

}  // namespace metal_marlin
