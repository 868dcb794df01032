#include "backends/gpu/kernels.h"

#include <algorithm>

#include "formats/widen.h"

namespace metal_marlin::gpu {
namespace {

/// Codes of every format, and the two-level scales of K-quants.
bool reads(const WeightMeta& meta) {
  if (!meta.has_two_level_scales()) return true;
  if (meta.zero_kind != ZeroKind::none && !meta.has_two_level_zeros()) return false;
  return meta.group_size == 16 || meta.group_size == 32;
}

constexpr bool metal_kernels(KernelCodes codes, ActivationKind activation) {
  if (activation == ActivationKind::e4m3) return false;
  const bool of_metal = codes <= KernelCodes::planes || codes == KernelCodes::lut4;
  return of_metal || (codes == KernelCodes::floats && activation != ActivationKind::i8);
}
/// Tensor operations take 16-bit activations without conversion, and codes that 16 bits hold.
constexpr bool tensor_kernels(KernelCodes codes, ActivationKind activation) {
  return codes <= KernelCodes::planes && are_halves(activation);
}
/// Those whose codes lie in the words of one load each, by activations as the kernels multiply
/// them.
constexpr bool nax_kernels(KernelCodes codes, ActivationKind activation) {
  return codes <= KernelCodes::i8 && are_halves(activation);
}
/// A product covers 32 slots of a row, which have one scale, or weights that 16 bits hold: NVFP4's.
bool covers_groups(const ProductKernel&, const RowBlockLayout& layout, ActivationKind) {
  return layout.slot_group >= kLanes ||
         (layout.codes == KernelCodes::fp4 && layout.scale_type == ScaleType::e4m3);
}

SortedRows few_rows(const RowBlockLayout&) { return SortedRows::few; }

/// Whether 128 registers hold the sums of four rows (tests/shaders/registers_test.cc), or else
/// fewer at a time serve. Addresses of experts (`routed`) are in registers, too.
bool registers_hold_four_rows(const RowBlockLayout& layout, ActivationKind activation,
                              bool routed) {
  if (!routed) return true;
  return layout.zero_kind != ZeroKind::additive &&
         !(layout.sparse() && activation == ActivationKind::f32);
}
/// The same of six rows: beside one thing that takes more registers than 4-bit codes by float16
/// activations do, which addresses are. Where they do not, eight rows by matrices take the place.
bool registers_hold_six_rows(const RowBlockLayout& layout, ActivationKind activation, bool routed) {
  const bool wide_codes = layout.codes != KernelCodes::fp4 && layout.codes != KernelCodes::u4;
  const bool additive = layout.zero_kind == ZeroKind::additive;
  return additive + wide_codes + (activation != ActivationKind::f16) + routed <= 1;
}
/// The same of 32 rows by matrices, or else 16 at a time serve.
bool registers_hold_32_rows(const RowBlockLayout& layout, ActivationKind activation, bool routed) {
  const bool planes = layout.codes == KernelCodes::planes, spread = layout.sparse() || planes;
  if (routed && (spread || layout.code_form == kFormF32 || !are_halves(activation))) return false;
  if (activation == ActivationKind::i8) return !spread;
  if (layout.scale_type == ScaleType::nested) return activation == ActivationKind::f32;
  return activation != ActivationKind::f32 || !(layout.sparse() || (planes && !layout.two_level()));
}

constexpr ProductKernel kProducts[] = {
#define MARLIN_GPU_KERNEL(names, ...) {.pattern = names, __VA_ARGS__},
#include "backends/gpu/kernels.inc"
#undef MARLIN_GPU_KERNEL
};

/// The function constants of the shaders that are bool; the others are uint.
constexpr uint32_t kBooleans[] = {
    MARLIN_CONSTANT_ALIGNED,     MARLIN_CONSTANT_RAGGED,    MARLIN_CONSTANT_ACCUMULATE,
    MARLIN_CONSTANT_PARTIAL,     MARLIN_CONSTANT_ROW_LIST,  MARLIN_CONSTANT_SLOT_TO_K,
    MARLIN_CONSTANT_INTERLEAVED, MARLIN_CONSTANT_QUANTIZED, MARLIN_CONSTANT_SORTS_ROWS,
};

}  // namespace

bool is_wide(const WeightMeta& meta) { return !is_narrow(meta); }

const Policy& simdgroup_policy() {
  static constexpr Policy kPolicy{.kernels = checked_rows<kProducts>(), .reads = reads};
  return kPolicy;
}

const ProductKernel* product_kernel(const Policy& policy, std::string_view name) {
  for (const ProductKernel& kernel : policy.kernels)
    if (kernel.names.contain(name)) return &kernel;
  return nullptr;
}

HelperKernel unpack_kernel(KernelCodes codes) {
  constexpr std::string_view kNames[] = {
      "unpack_fp4",    "unpack_u4",  "unpack_i8",   "unpack_fp4_sparse", "unpack_u4_sparse",
      "unpack_planes", "unpack_u8",  "unpack_e4m3", "unpack_lut4",       "unpack_floats",
      "unpack_f32",    "unpack_f16", "unpack_bf16"};
  static_assert(std::size(kNames) == kKernelCodes);
  return {kNames[static_cast<int>(codes)], 8};
}

/// Columns of a threadgroup that has a whole row.
constexpr int64_t kAllColumns = INT32_MAX;

HelperKernel quantize_kernel(marlin_dtype from, SlotOrder order) {
  const int64_t columns = order == SlotOrder::mma ? kAllColumns : int64_t{kActivationBlock};
  if (from == MARLIN_F32) return {"quantize_f32", columns};
  return {from == MARLIN_F16 ? "quantize_f16" : "quantize_bf16", columns};
}

HelperKernel round_kernel(marlin_dtype from) {
  if (from == MARLIN_F32) return {"e4m3_f32", kAllColumns};
  return {from == MARLIN_F16 ? "e4m3_f16" : "e4m3_bf16", kAllColumns};
}

HelperKernel gather_kernel(marlin_dtype dtype) {
  return {dtype == MARLIN_F32 ? "gather_b4" : "gather_b2", 8};
}

HelperKernel group_sums_kernel(marlin_dtype dtype) {
  return {dtype == MARLIN_F16 ? "group_sums_f16" : "group_sums_bf16", 8};
}

std::string_view expand_kernel(KernelCodes codes, ActivationKind activation) {
  constexpr auto kHalves = [](KernelCodes, ActivationKind kind) { return are_halves(kind); };
  static constexpr KernelNames kNames("expand_*_n32", kHalves);
  return kNames.of(codes, activation);
}

HelperKernel finish_kernel() { return {"finish", 1}; }

std::string_view route_kernel() { return "route"; }

uint32_t float_constant(marlin_dtype dtype) {
  switch (dtype) {
    case MARLIN_F32:
      return kFloat32;
    case MARLIN_F16:
      return kFloat16;
    case MARLIN_BF16:
      return kFloatBf16;
    default:
      return kFloatNone;
  }
}

Variant& Variant::set(uint32_t index, uint32_t value) {
  values_[index] = static_cast<uint8_t>(value);
  return *this;
}

Variant& Variant::set_decoder(const RowBlockLayout& layout) {
  return set(MARLIN_CONSTANT_SCALE_TYPE, layout.scale_constant())
      .set(MARLIN_CONSTANT_ZERO_KIND, layout.zero_constant())
      .set(MARLIN_CONSTANT_GROUP_SHIFT, layout.group_shift_constant())
      .set(MARLIN_CONSTANT_CODE_FORM, layout.code_form);
}

std::array<device::Constant, Variant::kConstants> Variant::constants() const {
  using enum device::Constant::Type;
  std::array<device::Constant, kConstants> all;
  for (uint32_t i = 0; i < kConstants; ++i)
    all[i] = {i, std::ranges::count(kBooleans, i) != 0 ? boolean : uint32, values_[i]};
  return all;
}

Result<device::KernelRef> KernelCache::get(const Variant& variant) {
  return kernels_.get(variant, [&] { return device_.kernel(variant.name(), variant.constants()); });
}

}  // namespace metal_marlin::gpu
