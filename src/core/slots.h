// Maps each k of the file to a slot of the packed K.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "formats/weights.h"

namespace metal_marlin {

/// The requirements and costs of a backend's layout: bytes (in any unit) of a slot, and of the
/// scale and zero of a slot group.
struct SlotCosts {
  int64_t pad = 128;  ///< slots are padded to a multiple of this
  int64_t slot = 0, group = 0;
};

struct Slots {
  int64_t count = 0;  ///< padded length of K
  int group = 0;      ///< slots that share a scale: 16, 32, 64 or 128; longer groups repeat theirs
  std::vector<int32_t>
      slot_to_k;  ///< [count], -1: padding; empty: slot s is k s, padded at the end
};

/// Whether slots are ever assigned to groups of this size.
bool is_slot_group(int64_t size) noexcept;
/// Drops a meta.group_index that equals k / group_size. Groups that no layout can hold are
/// MARLIN_E_UNSUPPORTED.
Result<Slots> assign_slots(WeightMeta& meta, const SlotCosts& costs);

/// The group in the file for each slot group, -1 for padding: [count / group], rounded up.
std::vector<int32_t> groups_of_slots(const WeightMeta& meta, const Slots& slots);

}  // namespace metal_marlin
