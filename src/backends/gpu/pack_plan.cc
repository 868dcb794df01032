#include <algorithm>
#include <cinttypes>
#include <utility>

#include "backends/gpu/kernels.h"
#include "backends/gpu/pack.h"
#include "base/checked.h"
#include "core/slots.h"
#include "formats/format_table.h"

namespace metal_marlin::gpu {
namespace {

KernelCodes kernel_codes(const WeightMeta& meta, SlotOrder order) {
  const FormatRow& row = *format_row(meta.format);
  if (order == SlotOrder::mma) {
    if (meta.format == MARLIN_FORMAT_UINT8) return KernelCodes::u8;
    if (meta.format == MARLIN_FORMAT_FP8) return KernelCodes::e4m3;
    if (meta.format == MARLIN_FORMAT_FLOAT32) return KernelCodes::f32;
    if (meta.format == MARLIN_FORMAT_FLOAT16) return KernelCodes::f16;
    if (meta.format == MARLIN_FORMAT_BFLOAT16) return KernelCodes::bf16;
  }
  if (row.code_bits > 8) return KernelCodes::floats;
  if (row.code_bits == 8) return KernelCodes::i8;
  if (row.code_bits != 4) return KernelCodes::planes;
  if (row.codebook == kE2m1) return meta.sparse ? KernelCodes::fp4_sparse : KernelCodes::fp4;
  if (row.numbers == CodeNumbers::codebook) return KernelCodes::lut4;
  return meta.sparse ? KernelCodes::u4_sparse : KernelCodes::u4;
}

uint32_t code_form(const WeightMeta& meta) {
  if (meta.format == MARLIN_FORMAT_UINT8) return kFormUnsigned;
  if (meta.format == MARLIN_FORMAT_FP8) return kFormE4m3;
  if (meta.format == MARLIN_FORMAT_FLOAT32) return kFormF32;
  if (meta.format == MARLIN_FORMAT_FLOAT16) return kFormF16;
  if (meta.format == MARLIN_FORMAT_BFLOAT16) return kFormBf16;
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
                     meta.format == MARLIN_FORMAT_FP8;
  return multiplies || small ? kRowFactorMultiply : kRowFactorNone;
}

/// Everything of the layout that does not depend on the slots.
Result<RowBlockLayout> layout_of(const WeightMeta& meta, Exponents exponents, SlotOrder order) {
  for (const TensorScale& t : meta.tensor_scales) {
    if (t.divisor != 1) {
      return Status::error(MARLIN_E_UNSUPPORTED,
                           "this device takes no tensor scale that is divided by %g (MLX's "
                           "global_scale); the CPU does",
                           static_cast<double>(t.divisor));
    }
  }
  RowBlockLayout layout;
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
  return layout;
}

SlotCosts slot_costs(const RowBlockLayout& layout) {
  const auto group_bytes =
      static_cast<int64_t>(scale_bytes(layout.scale_type)) + layout.zero_bytes();
  return {layout.order == SlotOrder::mma ? kMmaSlots : kTailSlots, layout.code_bits,
          8 * group_bytes};
}

/// Completes the layout with its slots.
Status set_slots(const WeightMeta& meta, bool has_index, const Slots& slots,
                 RowBlockLayout& layout) {
  layout.slots = slots.count;
  layout.slot_group = slots.group;
  if (layout.slots > INT32_MAX - kBlockSlots)
    return Status::error(
        MARLIN_E_SHAPE,
        "k: %" PRId64 " elements with their padding are more than this device takes", meta.k);
  if (layout.n > INT32_MAX - kRowBlock)
    return Status::error(MARLIN_E_SHAPE, "n: %" PRId64 " rows are more than this device takes",
                         meta.n);
  const int64_t blocks = ceil_div(layout.slots, kBlockSlots);
  if (layout.slot_group == kBlockSlots && !has_index)
    layout.quad_blocks = meta.groups == 1 ? blocks : meta.group_size / kBlockSlots;
  layout.quads = layout.slot_group == kBlockSlots ? ceil_div(blocks, layout.quad_blocks)
                                                  : ceil_div(layout.slots, layout.slot_group);
  if (layout.two_level())  // whole super-blocks
    layout.quads = round_up(layout.slots, kFactorSpan) / layout.slot_group;
  if (layout.nested())
    layout.factor_quads = has_index ? 1 : std::min(meta.factor_groups, layout.quads);
  if (place_parts(layout)) return {};
  return Status::error(MARLIN_E_SHAPE,
                       "packed weights [%" PRId64 ", %" PRId64 "] do not fit the address space",
                       meta.n, meta.k);
}

/// Of a packed matrix: how its E8M0 scales are stored.
Exponents exponents_of(const PackedMatrix& matrix) {
  const bool floats =
      (matrix.own & RowBlockLayout::kScaleBits) == static_cast<uint32_t>(ScaleType::f32);
  return floats ? Exponents::floats : Exponents::bytes;
}

/// Completes the layout with what packing found out of the scales, and returns its numbers.
PackedNumbers numbers_of(RowBlockLayout& layout, const PackedMatrix& matrix) {
  layout.steady_scales =
      layout.order == SlotOrder::mma && (matrix.own & RowBlockLayout::kSteadyBit) != 0;
  return {layout.bytes, layout.slots, layout.slot_group, layout.plan_bits()};
}

}  // namespace

Result<PackPlan> plan_packing(const WeightMeta& meta, Exponents exponents, SlotOrder order) {
  PackPlan plan;
  plan.meta = meta;
  MARLIN_ASSIGN(plan.layout, layout_of(meta, exponents, order));
  RowBlockLayout& layout = plan.layout;
  MARLIN_ASSIGN(Slots slots, assign_slots(plan.meta, slot_costs(layout)));
  layout.permuted = !slots.slot_to_k.empty();
  MARLIN_RETURN_IF_ERROR(set_slots(plan.meta, !plan.meta.group_index.empty(), slots, layout));
  const std::vector<int32_t> groups = groups_of_slots(plan.meta, slots);
  for (size_t quad = 0; quad < static_cast<size_t>(layout.quads); ++quad) {
    const size_t at = quad * static_cast<size_t>(layout.quad_blocks);
    plan.groups.push_back(at < groups.size() ? groups[at] : -1);
  }
  plan.slot_to_k = std::move(slots.slot_to_k);
  return plan;
}

PackedForm packed_form(SlotOrder order) {
  return {order == SlotOrder::mma ? "cuda" : "metal", kPackedVersion};
}

Status check_packed(const PackedMatrix& matrix, uint64_t bytes, bool has_index,
                    const Policy& policy) {
  MARLIN_RETURN_IF_ERROR(check_meta_but_index(matrix.meta, has_index));
  if (!policy.reads(matrix.meta))
    return Status::error(MARLIN_E_FORMAT, "packed weights of %s, which this device never packs",
                         format_name(matrix.meta.format));
  WeightMeta meta = matrix.meta;
  meta.group_index = {};
  MARLIN_ASSIGN(RowBlockLayout layout, layout_of(meta, exponents_of(matrix), policy.order));
  const SlotCosts costs = slot_costs(layout);
  MARLIN_ASSIGN(const Slots slots,
                has_index ? own_slots(matrix, costs.pad) : assign_slots(meta, costs));
  layout.permuted = has_index && (matrix.own & RowBlockLayout::kPermutedBit) != 0;
  MARLIN_RETURN_IF_ERROR(set_slots(meta, has_index, slots, layout));
  return check_numbers(matrix, bytes, numbers_of(layout, matrix));
}

Result<PackPlan> plan_of_packed(const PackedMatrix& matrix, const Policy& policy) {
  const uint64_t bytes = matrix.data.size();
  MARLIN_RETURN_IF_ERROR(check_packed(matrix, bytes, !matrix.meta.group_index.empty(), policy));
  MARLIN_RETURN_IF_ERROR(check_meta(matrix.meta));
  MARLIN_ASSIGN(PackPlan plan, plan_packing(matrix.meta, exponents_of(matrix), policy.order));
  MARLIN_RETURN_IF_ERROR(check_numbers(matrix, bytes, numbers_of(plan.layout, matrix)));
  return plan;
}

}  // namespace metal_marlin::gpu
