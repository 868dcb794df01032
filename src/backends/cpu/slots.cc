#include "backends/cpu/slots.h"

#include <algorithm>
#include <cinttypes>
#include <numeric>
#include <utility>

namespace metal_marlin::cpu {
namespace {

constexpr int kSlotGroups[] = {128, 64, 32, 16};

bool repeats_group_size(const WeightMeta& meta) {
  for (size_t k = 0; k < meta.group_index.size(); ++k)
    if (meta.group_index[k] != static_cast<int64_t>(k) / meta.group_size) return false;
  return true;
}

/// 0 when none fits. A longer group, or the only one of a row, repeats its scale.
int slot_group_of(const WeightMeta& meta) {
  for (const int size : kSlotGroups)
    if (meta.group_size == size) return size;
  return meta.groups == 1 || meta.group_size % kSuperSlots == 0 ? kSuperSlots : 0;
}

/// Lengths of the runs of equal groups in `order`.
std::vector<int64_t> run_lengths(const WeightMeta& meta, const std::vector<int32_t>& order) {
  std::vector<int64_t> lengths;
  int32_t group = -1;
  for (const int32_t k : order) {
    if (meta.group_index[k] != group) lengths.push_back(0);
    group = meta.group_index[k];
    ++lengths.back();
  }
  return lengths;
}

/// The slot group that packs runs of these lengths into the fewest bytes. Equal groups of an act-order file get their own size;
/// a shard of one, which holds a few k of every group, a smaller one. Sets slot_group and slots.
void choose_slot_group(const std::vector<int64_t>& lengths, PackedLayout& layout) {
  PackedLayout best = layout;
  for (const int size : kSlotGroups) {
    layout.slot_group = size;
    layout.slots = 0;
    for (const int64_t length : lengths) layout.slots += round_up(length, size);
    layout.slots = round_up(layout.slots, kSuperSlots);
    if (best.slots == 0 || layout.panel_bytes() < best.panel_bytes()) best = layout;
  }
  layout = best;
}

}  // namespace

Result<std::vector<int32_t>> assign_slots(WeightMeta& meta, PackedLayout& layout) {
  std::vector<int32_t> slot_to_k;
  if (!meta.group_index.empty() && repeats_group_size(meta)) {
    meta.group_index = {};
    meta.groups = ceil_div(meta.k, meta.group_size);
  }
  if (meta.group_index.empty()) {
    layout.slot_group = slot_group_of(meta);
    layout.slots = round_up(meta.k, kSuperSlots);
    if (layout.slot_group == 0)
      return Status::error(MARLIN_E_UNSUPPORTED,
                           "group_size is %" PRId64 ", expected 16, 32, 64, a multiple of 128 or k = %" PRId64, meta.group_size,
                           meta.k);
    return slot_to_k;
  }

  std::vector<int32_t> order(meta.group_index.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return std::pair(meta.group_index[a], a) < std::pair(meta.group_index[b], b);  // stable
  });
  const std::vector<int64_t> lengths = run_lengths(meta, order);
  layout.slots = 0;
  choose_slot_group(lengths, layout);

  slot_to_k.assign(static_cast<size_t>(layout.slots), -1);
  auto from = order.begin();
  auto to = slot_to_k.begin();
  for (const int64_t length : lengths) {
    std::copy_n(from, length, to);
    from += length;
    to += round_up(length, layout.slot_group);
  }
  // A shard of a plain file keeps its global group index although its order is that of the file.
  bool in_order = true;
  for (int64_t k = 0; k < meta.k; ++k) in_order &= slot_to_k[k] == k;
  if (in_order) slot_to_k = {};
  return slot_to_k;
}

std::vector<int32_t> groups_of_slots(const WeightMeta& meta, const PackedLayout& layout,
                                     const std::vector<int32_t>& slot_to_k) {
  std::vector<int32_t> groups(static_cast<size_t>(layout.slots / layout.slot_group), -1);
  for (size_t i = 0; i < groups.size(); ++i) {
    // Padding comes last in a group, so the first slot speaks for all.
    const int64_t slot = static_cast<int64_t>(i) * layout.slot_group;
    const int64_t k = slot_to_k.empty() ? slot : slot_to_k[slot];
    if (k < 0 || k >= meta.k) continue;
    groups[i] = meta.group_index.empty() ? static_cast<int32_t>(k / meta.group_size) : meta.group_index[k];
  }
  return groups;
}

}  // namespace metal_marlin::cpu
