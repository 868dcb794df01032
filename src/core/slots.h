// Where each k of the file goes along the packed K.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "formats/weights.h"

namespace metal_marlin {

/// What a backend's layout asks for, and what it costs: bytes (of any unit) a slot, and a slot
/// group's scale and zero.
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

/// Drops a meta.group_index that says no more than k / group_size. MARLIN_E_UNSUPPORTED for groups
/// that no layout can hold.
Result<Slots> assign_slots(WeightMeta& meta, const SlotCosts& costs);

/// Layouts round N up to whole panels, `padded_n` in all, so that a matrix of one row takes up to
/// 64 times its bytes. Nobody minds for the rows that models have. MARLIN_E_UNSUPPORTED where they
/// are so long that `bytes`, the packed size, is more than four times what the rows themselves take
/// of it and 64 MiB: with N = 1 and 64 columns in a panel, from about 1.9 million 4-bit codes on.
Status check_padding(const WeightMeta& meta, int64_t padded_n, uint64_t bytes);

/// The file's group of each slot group, -1 for padding: [count / group], rounded up.
std::vector<int32_t> groups_of_slots(const WeightMeta& meta, const Slots& slots);

}  // namespace metal_marlin
