#include "backends/cuda/policy.h"

#include <algorithm>

#include "shaders/common/cuda_parameters.h"

namespace metal_marlin::cuda {
namespace {

/// An H200 has as many multiprocessors.
constexpr int64_t kGroupsOfHopper = 132;

#define MARLIN_CUDA_FORM(scale, zero, shift) Form{scale, zero, shift},
#define MARLIN_CUDA_FORMS(name, list) constexpr Form name[] = {list(MARLIN_CUDA_FORM)}
MARLIN_CUDA_FORMS(kFp4, MARLIN_CUDA_FORMS_fp4);
MARLIN_CUDA_FORMS(kMmaFp4, MARLIN_MMA_FORMS_fp4);
MARLIN_CUDA_FORMS(kWgmmaFp4, MARLIN_WGMMA_FORMS_fp4);
MARLIN_CUDA_FORMS(kU4, MARLIN_CUDA_FORMS_u4);
MARLIN_CUDA_FORMS(kMmaU4, MARLIN_MMA_FORMS_u4);
MARLIN_CUDA_FORMS(kWgmmaU4, MARLIN_WGMMA_FORMS_u4);
MARLIN_CUDA_FORMS(kI8, MARLIN_CUDA_FORMS_i8);
MARLIN_CUDA_FORMS(kE4m3, MARLIN_CUDA_FORMS_e4m3);
MARLIN_CUDA_FORMS(kHalves, MARLIN_CUDA_FORMS_bf16);
MARLIN_CUDA_FORMS(kMmaI8, MARLIN_MMA_FORMS_i8);
MARLIN_CUDA_FORMS(kWgmmaI8, MARLIN_WGMMA_FORMS_i8);
MARLIN_CUDA_FORMS(kFp4Sparse, MARLIN_CUDA_FORMS_fp4_sparse);
MARLIN_CUDA_FORMS(kU4Sparse, MARLIN_CUDA_FORMS_u4_sparse);
#undef MARLIN_CUDA_FORMS
#undef MARLIN_CUDA_FORM

/// The forms that kernels are compiled for: those of any GPU and Hopper's rings, of Hopper's tiles,
/// and of its tiles that round.
struct CompiledForms {
  gpu::KernelCodes codes;
  std::span<const Form> all, mma = {}, wgmma = {}, w16 = {};
};
constexpr CompiledForms kCompiled[] = {
    {gpu::KernelCodes::fp4, kFp4, kMmaFp4, kWgmmaFp4},
    {gpu::KernelCodes::u4, kU4, kMmaU4, kWgmmaU4, kU4},
    {gpu::KernelCodes::i8, kI8, kMmaI8, kWgmmaI8, kI8},
    {gpu::KernelCodes::e4m3, kE4m3, kE4m3, kE4m3, kE4m3},
    {gpu::KernelCodes::f16, kHalves, kHalves, kHalves},
    {gpu::KernelCodes::bf16, kHalves, kHalves, kHalves},
    {gpu::KernelCodes::fp4_sparse, kFp4Sparse},
    {gpu::KernelCodes::u4_sparse, kU4Sparse},
};
constexpr CompiledForms compiled_forms_of(gpu::KernelCodes codes) {
  for (const CompiledForms& forms : kCompiled)
    if (forms.codes == codes) return forms;
  return {codes, {}};
}

bool has(std::span<const Form> forms, const gpu::RowBlockLayout& layout) {
  const Form form{layout.scale_constant(), layout.zero_constant(), layout.group_shift_constant()};
  return std::find(forms.begin(), forms.end(), form) != forms.end();
}

/// Floats of 16 bits are multiplied by their like as they are.
bool are_alike(const gpu::RowBlockLayout& layout, gpu::ActivationKind activation) {
  if (layout.codes == gpu::KernelCodes::f16) return activation == gpu::ActivationKind::f16;
  return layout.codes != gpu::KernelCodes::bf16 || activation == gpu::ActivationKind::bf16;
}

// Whether kernels serve weights and activations (gpu::ProductKernel::serves).
bool has_ring(const gpu::RowBlockLayout& layout, gpu::ActivationKind activation) {
  return are_alike(layout, activation) && has(compiled_forms_of(layout.codes).all, layout);
}
/// Kernels read no scales of floats.
bool has_float32_scales(const gpu::RowBlockLayout& layout) {
  return layout.scale_type == ScaleType::f32 && !gpu::are_floats(layout.codes);
}
uint32_t words_of(const gpu::RowBlockLayout& layout) {
  return static_cast<uint32_t>(layout.words(kLanes));
}
/// Whether the registers and the shared memory of a tile of so many rows of A are enough.
bool has_room(const gpu::RowBlockLayout& layout, uint32_t rows) {
  return has_tile_of(rows, words_of(layout), has_float32_scales(layout),
                     layout.group_shift_constant());
}
template <uint32_t kRows>
bool has_mma(const gpu::RowBlockLayout& layout, gpu::ActivationKind activation) {
  return are_alike(layout, activation) && has(compiled_forms_of(layout.codes).mma, layout) &&
         has_room(layout, kRows);
}
bool has_steady_scales(const gpu::RowBlockLayout& layout) {
  return !has_float32_scales(layout) || layout.steady_scales;
}
template <uint32_t kRows>
bool has_w16(const gpu::RowBlockLayout& layout, gpu::ActivationKind) {
  return has_steady_scales(layout) && has(compiled_forms_of(layout.codes).w16, layout) &&
         has_rounding_tile_of(kRows, words_of(layout), has_float32_scales(layout),
                              layout.zero_kind != ZeroKind::none, layout.group_shift_constant());
}
/// Scales that bfloat16 and float16 products of a code and a scale hold exactly are multiplied into
/// weights. Others are units of sums (kHasWgmma of shaders/cuda/operand.cuh), whose ratios must be
/// far from the ends of float32.
template <uint32_t kRows>
bool has_wgmma(const gpu::RowBlockLayout& layout, gpu::ActivationKind activation) {
  const bool exact =
      layout.scale_type != ScaleType::e8m0 || activation == gpu::ActivationKind::bf16;
  return exact && has_steady_scales(layout) && are_alike(layout, activation) &&
         has(compiled_forms_of(layout.codes).wgmma, layout) && has_room(layout, kRows);
}

/// One kernel alone, whatever M is: tensor cores add a step's products in an order of their own,
/// and what the kernels of other tiles have in common was not proved on hardware.
constexpr bool kernel_is_row_invariant(std::string_view family, std::string_view suffix) {
  return family == "gemv" && suffix == "m8";
}

// How many routed rows the blocks of a kernel sort (gpu::ProductKernel::sorts).
using Sorts = gpu::ProductKernel::Sorts;
using SortsOf = Sorts (*)(const gpu::RowBlockLayout&);
Sorts few_routes(const gpu::RowBlockLayout&) { return Sorts::few; }
/// Integers in groups of less than 128 slots, 2:4 weights in such groups, and float32 scales leave
/// no registers for more (kSortsMany of shaders/cuda/ring.cuh).
Sorts routes_of_ring(const gpu::RowBlockLayout& layout) {
  const bool fp4 = layout.codes == gpu::KernelCodes::fp4;
  const bool is_long =
      layout.group_shift_constant() == kLongGroupShift && !gpu::are_floats(layout.codes);
  const bool half_zeros =
      layout.zero_kind == ZeroKind::additive && layout.scale_type != ScaleType::f32;
  return fp4 || is_long || half_zeros ? Sorts::many : Sorts::few;
}
/// Tiles add up gathered rows over groups for additive zeros.
Sorts routes_of_mma(const gpu::RowBlockLayout& layout) {
  return layout.zero_kind == ZeroKind::additive ? Sorts::none : Sorts::many;
}
Sorts many_routes(const gpu::RowBlockLayout&) { return Sorts::many; }
/// Tiles of wgmma get A from the copy engine, which takes gathered rows.
constexpr SortsOf sorts_of_hopper(std::string_view family) {
  if (family == "ring") return routes_of_ring;
  if (family == "mma_w16") return many_routes;
  return family == "mma" ? routes_of_mma : nullptr;
}

/// Of codes that every compute multiplies by floats.
#define MARLIN_CUDA_FLOAT_ACTIVATIONS(prefix, suffix) \
  {prefix "f32_" suffix, prefix "f16_" suffix, prefix "bf16_" suffix, ""}
#define MARLIN_CUDA_PRODUCT(family, suffix, m_min, m_max, rows, columns, threads, groups) \
  {{MARLIN_GPU_ACTIVATIONS(family "_fp4_", suffix),                                       \
    MARLIN_GPU_ACTIVATIONS(family "_u4_", suffix),                                        \
    MARLIN_GPU_ACTIVATIONS(family "_i8_", suffix),                                        \
    MARLIN_GPU_ACTIVATIONS(family "_fp4_sparse_", suffix),                                \
    MARLIN_GPU_ACTIVATIONS(family "_u4_sparse_", suffix),                                 \
    {},                                                                                   \
    MARLIN_GPU_ACTIVATIONS(family "_u8_", suffix),                                        \
    MARLIN_CUDA_FLOAT_ACTIVATIONS(family "_e4m3_", suffix),                               \
    MARLIN_CUDA_FLOAT_ACTIVATIONS(family "_lut4_", suffix),                               \
    {},                                                                                   \
    MARLIN_CUDA_FLOAT_ACTIVATIONS(family "_f32_", suffix),                                \
    MARLIN_CUDA_FLOAT_ACTIVATIONS(family "_f16_", suffix),                                \
    MARLIN_CUDA_FLOAT_ACTIVATIONS(family "_bf16_", suffix)},                              \
   m_min,                                                                                 \
   m_max,                                                                                 \
   rows,                                                                                  \
   columns,                                                                               \
   threads,                                                                               \
   true,                                                                                  \
   false,                                                                                 \
   groups,                                                                                \
   kernel_is_row_invariant(family, suffix),                                               \
   nullptr,                                                                               \
   false,                                                                                 \
   false,                                                                                 \
   1,                                                                                     \
   {},                                                                                    \
   0,                                                                                     \
   std::string_view(family) == "gemv" ? few_routes : nullptr},
/// The name of a kernel of 2:4 weights, of which Hopper has rings alone.
constexpr std::string_view sparse_kernel(std::string_view name) {
  return name.starts_with("ring_") ? name : std::string_view();
}

#define MARLIN_HOPPER_ACTIVATIONS(prefix, suffix) \
  {"", prefix "f16_" suffix, prefix "bf16_" suffix, ""}
#define MARLIN_HOPPER_SPARSE_ACTIVATIONS(prefix, suffix) \
  {"", sparse_kernel(prefix "f16_" suffix), sparse_kernel(prefix "bf16_" suffix), ""}
#define MARLIN_HOPPER_PRODUCT(family, suffix, m_min, m_max, rows, columns, threads, shared_bytes, \
                              activation_bytes, shares_tiles, serves, ...)                        \
  {{MARLIN_HOPPER_ACTIVATIONS(family "_fp4_", suffix),                                            \
    MARLIN_HOPPER_ACTIVATIONS(family "_u4_", suffix),                                             \
    MARLIN_HOPPER_ACTIVATIONS(family "_i8_", suffix),                                             \
    MARLIN_HOPPER_SPARSE_ACTIVATIONS(family "_fp4_sparse_", suffix),                              \
    MARLIN_HOPPER_SPARSE_ACTIVATIONS(family "_u4_sparse_", suffix),                               \
    {},                                                                                           \
    {},                                                                                           \
    MARLIN_HOPPER_ACTIVATIONS(family "_e4m3_", suffix),                                           \
    {},                                                                                           \
    {},                                                                                           \
    {},                                                                                           \
    {"", family "_f16_f16_" suffix, "", ""},                                                      \
    {"", "", family "_bf16_bf16_" suffix, ""}},                                                   \
   m_min,                                                                                         \
   m_max,                                                                                         \
   rows,                                                                                          \
   columns,                                                                                       \
   threads,                                                                                       \
   true,                                                                                          \
   true,                                                                                          \
   kGroupsOfHopper,                                                                               \
   false,                                                                                         \
   serves,                                                                                        \
   true,                                                                                          \
   shares_tiles,                                                                                  \
   tile_cluster_of(rows),                                                                         \
   {__VA_ARGS__},                                                                                 \
   activation_bytes,                                                                              \
   sorts_of_hopper(family),                                                                       \
   true,                                                                                          \
   std::string_view(family).ends_with("_w16")},
constexpr gpu::ProductKernel kProducts[] = {
#include "backends/cuda/kernels.inc"
};
#undef MARLIN_CUDA_PRODUCT
#undef MARLIN_CUDA_FLOAT_ACTIVATIONS
#undef MARLIN_HOPPER_PRODUCT
static_assert(std::size(kProducts) <= gpu::kMostProductKernels);

}  // namespace

std::span<const Form> forms_of(gpu::KernelCodes codes) { return compiled_forms_of(codes).all; }

const gpu::Policy& policy() {
  static constexpr gpu::Policy kPolicy{.kernels = kProducts,
                                       .order = gpu::SlotOrder::mma,
                                       .reads = gpu::is_wide,
                                       .rounds_to_e4m3 = true};
  return kPolicy;
}

}  // namespace metal_marlin::cuda
