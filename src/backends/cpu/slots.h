// Where each k of the file goes along the packed K.
#pragma once

#include <cstdint>
#include <vector>

#include "backends/cpu/layout.h"

namespace metal_marlin::cpu {

/// Fills layout.slot_group and layout.slots (the layout's types and code bits are set) and returns slot_to_k, empty when slot s
/// is k s. Drops a meta.group_index that says no more than k / group_size. MARLIN_E_UNSUPPORTED for groups that the layout
/// cannot hold.
Result<std::vector<int32_t>> assign_slots(WeightMeta& meta, PackedLayout& layout);

/// The file's group of each slot group, -1 for padding: [slots / slot_group].
std::vector<int32_t> groups_of_slots(const WeightMeta& meta, const PackedLayout& layout, const std::vector<int32_t>& slot_to_k);

}  // namespace metal_marlin::cpu
