#include "core/slots.h"

#include <algorithm>
#include <cinttypes>
#include <iterator>
#include <numeric>
#include <utility>

#include "base/bits.h"

namespace metal_marlin {
namespace {

constexpr int kSlotGroups[] = {128, 64, 32, 16};
constexpr int kLargestSlotGroup = 128;

bool repeats_group_size(const WeightMeta& meta) {
  for (size_t k = 0; k < meta.group_index.size(); ++k)
    if (meta.group_index[k] != static_cast<int64_t>(k) / meta.group_size) return false;
  return true;
}

/// Returns 0 if no slot group fits. A longer group, or the only group of a row, repeats its scale.
int slot_group_of(const WeightMeta& meta) {
  for (const int size : kSlotGroups)
    if (meta.group_size == size) return size;
  return meta.groups == 1 || meta.group_size % kLargestSlotGroup == 0 ? kLargestSlotGroup : 0;
}

/// The lengths of the runs of equal groups in `order`.
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

/// Chooses the slot group that packs runs of these lengths into the fewest bytes. For equal groups
/// of an act-order file, this is their own size. For a shard of such a file, which holds a few k of
/// every group, it is smaller.
void choose_slot_group(const std::vector<int64_t>& lengths, const SlotCosts& costs, Slots& slots) {
  int64_t least = INT64_MAX;
  for (const int size : kSlotGroups) {
    int64_t count = 0;
    for (const int64_t length : lengths) count += round_up(length, size);
    count = round_up(count, costs.pad);
    const int64_t cost = count * costs.slot + ceil_div(count, size) * costs.group;
    if (cost >= least) continue;
    least = cost;
    slots.group = size;
    slots.count = count;
  }
}

}  // namespace

bool is_slot_group(int64_t size) noexcept {
  return std::find(std::begin(kSlotGroups), std::end(kSlotGroups), size) != std::end(kSlotGroups);
}

Result<Slots> assign_slots(WeightMeta& meta, const SlotCosts& costs) {
  Slots slots;
  if (!meta.group_index.empty() && repeats_group_size(meta)) {
    meta.group_index = {};
    meta.groups = ceil_div(meta.k, meta.group_size);
    meta.factor_groups = std::min<int64_t>(meta.factor_groups, 1);
  }
  if (meta.group_index.empty()) {
    slots.group = slot_group_of(meta);
    slots.count = round_up(meta.k, costs.pad);
    if (slots.group == 0)
      return Status::error(MARLIN_E_UNSUPPORTED,
                           "group_size is %" PRId64
                           ", expected 16, 32, 64, a multiple of 128 or k = %" PRId64,
                           meta.group_size, meta.k);
    return slots;
  }

  std::vector<int32_t> order(meta.group_index.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return std::pair(meta.group_index[a], a) < std::pair(meta.group_index[b], b);  // stable
  });
  const std::vector<int64_t> lengths = run_lengths(meta, order);
  choose_slot_group(lengths, costs, slots);

  slots.slot_to_k.assign(static_cast<size_t>(slots.count), -1);
  auto from = order.begin();
  auto to = slots.slot_to_k.begin();
  for (const int64_t length : lengths) {
    std::copy_n(from, length, to);
    from += length;
    to += round_up(length, slots.group);
  }
  // A shard of a plain file keeps its global group index, although it has the order of the file.
  bool in_order = true;
  for (int64_t k = 0; k < meta.k; ++k) in_order &= slots.slot_to_k[k] == k;
  if (in_order) slots.slot_to_k = {};
  return slots;
}

std::vector<int32_t> groups_of_slots(const WeightMeta& meta, const Slots& slots) {
  std::vector<int32_t> groups(static_cast<size_t>(ceil_div(slots.count, slots.group)), -1);
  for (size_t i = 0; i < groups.size(); ++i) {
    // Padding comes last in a group, so the first slot decides for the whole group.
    const int64_t slot = static_cast<int64_t>(i) * slots.group;
    const int64_t k = slots.slot_to_k.empty() ? slot : slots.slot_to_k[slot];
    if (k < 0 || k >= meta.k) continue;
    groups[i] =
        meta.group_index.empty() ? static_cast<int32_t>(k / meta.group_size) : meta.group_index[k];
  }
  return groups;
}

}  // namespace metal_marlin
