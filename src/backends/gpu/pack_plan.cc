#include <algorithm>
#include <cinttypes>
#include <utility>

#include "backends/gpu/pack.h"
#include "base/checked.h"
#include "core/slots.h"
#include "formats/format_table.h"

namespace metal_marlin::gpu {
namespace {

KernelCodes kernel_codes(const WeightMeta& meta, SlotOrder order) {
  const FormatRow& row = *format_row(meta.format);
  if (order == SlotOrder::mma) {
    if (meta.format == MARLIN_UINT8) return KernelCodes::u8;
    if (meta.format == MARLIN_FP8) return KernelCodes::e4m3;
    if (meta.format == MARLIN_FLOAT32) return KernelCodes::f32;
    if (meta.format == MARLIN_FLOAT16) return KernelCodes::f16;
    if (meta.format == MARLIN_BFLOAT16) return KernelCodes::bf16;
  }
  if (row.code_bits > 8) return KernelCodes::floats;
  if (row.code_bits == 8) return KernelCodes::i8;
  if (row.code_bits != 4) return KernelCodes::planes;
  if (row.codebook == kE2m1) return meta.sparse ? KernelCodes::fp4_sparse : KernelCodes::fp4;
  if (row.numbers == CodeNumbers::codebook) return KernelCodes::lut4;
  return meta.sparse ? KernelCodes::u4_sparse : KernelCodes::u4;
}

uint32_t code_form(const WeightMeta& meta) {
  if (meta.format == MARLIN_UINT8) return kFormUnsigned;
  if (meta.format == MARLIN_FP8) return kFormE4m3;
  if (meta.format == MARLIN_FLOAT32) return kFormF32;
  if (meta.format == MARLIN_FLOAT16) return kFormF16;
  if (meta.format == MARLIN_BFLOAT16) return kFormBf16;
  const int bits = format_row(meta.format)->code_bits;
  return bits == 4 || bits == 8 ? uint32_t{kFormOwn} : static_cast<uint32_t>(bits);
}

/// Places the parts one after the other. Returns false if they do not fit the address space.
bool place_parts(RowBlockLayout& layout) {
  const Checked rows = Checked(layout.row_blocks()) * Checked(int64_t{kRowBlock});
  Checked at = Checked(layout.row_blocks()) * Checked(layout.row_block_code_bytes());
  const auto part = [&](uint64_t& offset, Checked bytes) {
    at = at.round_up(kPartAlign);
    offset = at.get().value_or(0);
    at = at + bytes;
  };
  const auto scale_size = static_cast<int64_t>(scale_bytes(layout.scale_type));
  const Checked row_blocks(layout.row_blocks());
  part(layout.scales_at, row_blocks * Checked(layout.row_block_record_bytes(scale_size)));
  part(layout.zeros_at, layout.codes == KernelCodes::lut4
                            ? Checked(layout.codebook_bytes())
                            : row_blocks * Checked(layout.row_block_zero_bytes()));
  const Checked records = layout.has_row_records() ? rows : Checked(0);
  part(layout.factors_at, records * Checked(sizeof(RowFactor)));
  part(layout.origins_at, records * Checked(sizeof(RowOrigin)));
  part(layout.slot_to_k_at,
       layout.permuted ? Checked(layout.slots) * Checked(sizeof(int32_t)) : Checked(0));
  const auto bytes = at.at_most(PTRDIFF_MAX);
  layout.bytes = bytes.value_or(0);
  return bytes.has_value();
}

MarlinRowFactor row_factor_of(const WeightMeta& meta) {
  const auto& tensor = meta.tensor_scales;
  if (std::any_of(tensor.begin(), tensor.end(), [](const TensorScale& t) { return t.divide; }))
    return kRowFactorDivide;
  const bool multiplies =
      std::any_of(tensor.begin(), tensor.end(), [](const TensorScale& t) { return t.value != 1; });
  // The stored bytes of E8M0 and E4M3 scales and decoded E4M3 codes cannot express NaN and large
  // ranges; the row factor does.
  const bool small = meta.scale_type == ScaleType::e8m0 || meta.scale_type == ScaleType::e4m3 ||
                     meta.format == MARLIN_FP8;
  return multiplies || small ? kRowFactorMultiply : kRowFactorNone;
}

}  // namespace

Result<PackPlan> plan_packing(const WeightMeta& meta, Exponents exponents, SlotOrder order) {
  for (const TensorScale& t : meta.tensor_scales) {
    if (t.divisor != 1) {
      return Status::error(MARLIN_E_UNSUPPORTED,
                           "this device takes no tensor scale that is divided by %g (MLX's "
                           "global_scale); the CPU does",
                           static_cast<double>(t.divisor));
    }
  }
  PackPlan plan;
  plan.meta = meta;
  RowBlockLayout& layout = plan.layout;
  layout.n = meta.n;
  layout.k = meta.k;
  layout.codes = kernel_codes(meta, order);
  layout.order = order;
  // The scale of a float is 1, which bytes hold on Metal alone (usual_shift of pack.cc).
  const bool floats =
      exponents == Exponents::floats || (are_floats(layout.codes) && order == SlotOrder::mma);
  layout.scale_type =
      meta.scale_type == ScaleType::e8m0 && floats ? ScaleType::f32 : meta.scale_type;
  layout.zero_kind = meta.zero_kind;
  layout.zero_type = meta.zero_type;
  layout.row_factor = row_factor_of(meta);
  layout.code_bits = format_row(meta.format)->code_bits;
  layout.code_form = code_form(meta);
  const auto group_bytes =
      static_cast<int64_t>(scale_bytes(layout.scale_type)) + layout.zero_bytes();
  MARLIN_ASSIGN(Slots slots,
                assign_slots(plan.meta, {order == SlotOrder::mma ? kMmaSlots : kTailSlots,
                                         layout.code_bits, 8 * group_bytes}));
  layout.slots = slots.count;
  layout.slot_group = slots.group;
  layout.permuted = !slots.slot_to_k.empty();
  if (layout.slots > INT32_MAX - kBlockSlots)
    return Status::error(
        MARLIN_E_SHAPE,
        "k: %" PRId64 " elements with their padding are more than this device takes", meta.k);
  const int64_t blocks = ceil_div(layout.slots, kBlockSlots);
  if (layout.slot_group == kBlockSlots && plan.meta.group_index.empty())
    layout.quad_blocks = plan.meta.groups == 1 ? blocks : plan.meta.group_size / kBlockSlots;
  layout.quads = layout.slot_group == kBlockSlots ? ceil_div(blocks, layout.quad_blocks)
                                                  : ceil_div(layout.slots, layout.slot_group);
  if (layout.two_level())  // whole super-blocks
    layout.quads = round_up(layout.slots, kFactorSpan) / layout.slot_group;
  if (layout.nested())
    layout.factor_quads =
        plan.meta.group_index.empty() ? std::min(plan.meta.factor_groups, layout.quads) : 1;
  const std::vector<int32_t> groups = groups_of_slots(plan.meta, slots);
  for (size_t quad = 0; quad < static_cast<size_t>(layout.quads); ++quad) {
    const size_t at = quad * static_cast<size_t>(layout.quad_blocks);
    plan.groups.push_back(at < groups.size() ? groups[at] : -1);
  }
  plan.slot_to_k = std::move(slots.slot_to_k);
  if (!place_parts(layout))
    return Status::error(MARLIN_E_SHAPE,
                         "packed weights [%" PRId64 ", %" PRId64 "] do not fit the address space",
                         meta.n, meta.k);
  return plan;
}

}  // namespace metal_marlin::gpu
