#include "backends/gpu/kernels.h"

#include <algorithm>

#include "formats/widen.h"

namespace metal_marlin::gpu {
namespace {

/// Some tens of cores want a few threadgroups each. Not measured on hardware yet.
constexpr int64_t kGroupsWanted = 128;

/// Codes of every format, and the two-level scales of K-quants.
bool reads(const WeightMeta& meta) {
  if (!meta.has_two_level_scales()) return true;
  if (meta.zero_kind != ZeroKind::none && !meta.has_two_level_zeros()) return false;
  return meta.group_size == 16 || meta.group_size == 32;
}

/// The name of a kernel of codes that tensor operations do not take.
constexpr std::string_view real_kernel(std::string_view name) {
  return name.ends_with("_tensor") ? std::string_view() : name;
}

#define MARLIN_GPU_OTHERS(family, suffix)                                                 \
  MARLIN_GPU_ACTIVATIONS(family "_fp4_sparse_", suffix),                                  \
      MARLIN_GPU_ACTIVATIONS(family "_u4_sparse_", suffix),                               \
      MARLIN_GPU_ACTIVATIONS(family "_planes_", suffix), {}, {},                          \
      {real_kernel(family "_lut4_f32_" suffix), real_kernel(family "_lut4_f16_" suffix),  \
       real_kernel(family "_lut4_bf16_" suffix), real_kernel(family "_lut4_i8_" suffix)}, \
  {                                                                                       \
    real_kernel(family "_floats_f32_" suffix), real_kernel(family "_floats_f16_" suffix), \
        real_kernel(family "_floats_bf16_" suffix), {}                                    \
  }
#define MARLIN_GPU_PRODUCT(family, suffix, m_min, m_max, rows, columns, threads)                   \
  {{MARLIN_GPU_ACTIVATIONS(family "_fp4_", suffix), MARLIN_GPU_ACTIVATIONS(family "_u4_", suffix), \
    MARLIN_GPU_ACTIVATIONS(family "_i8_", suffix), MARLIN_GPU_OTHERS(family, suffix)},             \
   m_min,                                                                                          \
   m_max,                                                                                          \
   rows,                                                                                           \
   columns,                                                                                        \
   threads,                                                                                        \
   std::string_view(family) == "regdecode" && !std::string_view(suffix).ends_with("tensor"),       \
   std::string_view(suffix).ends_with("tensor"),                                                   \
   kGroupsWanted,                                                                                  \
   std::string_view(family) == "gemv"},
#define MARLIN_GPU_HELPER(name, columns)
constexpr ProductKernel kProducts[] = {
#include "backends/gpu/kernels.inc"
};
#undef MARLIN_GPU_PRODUCT
#undef MARLIN_GPU_HELPER

#define MARLIN_GPU_PRODUCT(...)
#define MARLIN_GPU_HELPER(name, columns) {name, columns},
constexpr HelperKernel kHelpers[] = {
#include "backends/gpu/kernels.inc"
};
#undef MARLIN_GPU_PRODUCT
#undef MARLIN_GPU_HELPER

/// The helper whose row of the table is `prefix`, with its full name.
constexpr HelperKernel helper(std::string_view prefix, std::string_view name) {
  for (const HelperKernel& row : kHelpers)
    if (row.name == prefix) return {name, row.columns};
  return {};
}

static_assert(std::size(kProducts) <= kMostProductKernels);

constexpr bool is_boolean(uint32_t index) {
  switch (index) {
    case MARLIN_CONSTANT_ALIGNED:
    case MARLIN_CONSTANT_RAGGED:
    case MARLIN_CONSTANT_ACCUMULATE:
    case MARLIN_CONSTANT_PARTIAL:
    case MARLIN_CONSTANT_INTERLEAVED:
    case MARLIN_CONSTANT_SLOT_TO_K:
    case MARLIN_CONSTANT_ROW_LIST:
    case MARLIN_CONSTANT_QUANTIZED:
      return true;
    default:
      return false;
  }
}

}  // namespace

bool is_wide(const WeightMeta& meta) { return !is_narrow(meta); }

const Policy& simdgroup_policy() {
  static constexpr Policy kPolicy{kProducts, SlotOrder::simdgroup, reads};
  return kPolicy;
}

bool has_product_kernel(const Policy& policy, std::string_view name) {
  if (name.empty()) return false;  // the name of what a policy has no kernels for
  for (const ProductKernel& kernel : policy.kernels)
    for (const auto& names : kernel.names)
      if (std::find(std::begin(names), std::end(names), name) != std::end(names)) return true;
  return false;
}

HelperKernel unpack_kernel(KernelCodes codes) {
  constexpr std::string_view kNames[] = {
      "unpack_fp4",    "unpack_u4",  "unpack_i8",   "unpack_fp4_sparse", "unpack_u4_sparse",
      "unpack_planes", "unpack_u8",  "unpack_e4m3", "unpack_lut4",       "unpack_floats",
      "unpack_f32",    "unpack_f16", "unpack_bf16"};
  static_assert(std::size(kNames) == kKernelCodes);
  return helper("unpack", kNames[static_cast<int>(codes)]);
}

HelperKernel quantize_kernel(marlin_dtype from) {
  if (from == MARLIN_F32) return helper("quantize", "quantize_f32");
  return helper("quantize", from == MARLIN_F16 ? "quantize_f16" : "quantize_bf16");
}

HelperKernel round_kernel(marlin_dtype from) {
  constexpr int64_t kWholeRow = INT32_MAX;  // of a threadgroup
  if (from == MARLIN_F32) return {"e4m3_f32", kWholeRow};
  return {from == MARLIN_F16 ? "e4m3_f16" : "e4m3_bf16", kWholeRow};
}

HelperKernel gather_kernel(marlin_dtype dtype) {
  return helper("gather", dtype == MARLIN_F32 ? "gather_b4" : "gather_b2");
}

HelperKernel group_sums_kernel(marlin_dtype dtype) {
  return {dtype == MARLIN_F16 ? "group_sums_f16" : "group_sums_bf16", 8};
}

HelperKernel finish_kernel() { return helper("finish", "finish"); }

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
  std::array<device::Constant, kConstants> all;
  for (uint32_t index = 0; index < kConstants; ++index) {
    const auto type =
        is_boolean(index) ? device::Constant::Type::boolean : device::Constant::Type::uint32;
    all[index] = {index, type, values_[index]};
  }
  return all;
}

Result<device::KernelRef> KernelCache::get(const Variant& variant) {
  return kernels_.get(variant, [&] { return device_.kernel(variant.name(), variant.constants()); });
}

}  // namespace metal_marlin::gpu
