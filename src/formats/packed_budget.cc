#include "formats/packed_budget.h"

#include <cinttypes>

#include "formats/format_table.h"

namespace metal_marlin {

Checked own_bytes(const WeightMeta& meta) {
  const Checked elements = Checked(meta.n) * Checked(meta.k);
  size_t of_group = scale_bytes(meta.scale_type);
  if (meta.zero_kind == ZeroKind::integer) of_group += 1;
  if (meta.zero_kind == ZeroKind::additive) of_group += scale_bytes(meta.zero_type);
  const auto bits = static_cast<uint64_t>(format_row(meta.format)->code_bits);
  return (elements * Checked(bits)).ceil_div(8) +
         (elements * Checked(of_group)).ceil_div(static_cast<uint64_t>(meta.group_size)) +
         Checked(meta.group_index.size()) * Checked(sizeof(int32_t));
}

Status PackedBudget::take(uint64_t bytes) {
  constexpr uint64_t kBesides = uint64_t{64} << 20, kTimes = 4;
  const Checked all = packed_ + Checked(bytes);
  if (all.at_most((own_ * Checked(kTimes) + Checked(kBesides)).get().value_or(UINT64_MAX))) {
    packed_ = all;
    return {};
  }
  return Status::error(MARLIN_E_UNSUPPORTED,
                       "packed, these weights would take %" PRIu64
                       " bytes or more, expected up to 64 MiB and four times their own %" PRIu64
                       ": matrices of so few rows or columns are mostly padding",
                       all.get().value_or(UINT64_MAX), own_.get().value_or(UINT64_MAX));
}

}  // namespace metal_marlin
