#include "backends/cuda/policy.h"

#include <algorithm>

#include "shaders/common/cuda_parameters.h"

namespace metal_marlin::cuda {
namespace {

/// The group shift of groups of 128 slots and more, which kernels do not divide.
constexpr uint32_t kLongGroup = 7;
/// An H200 has as many multiprocessors.
constexpr int64_t kGroupsOfHopper = 132;

#define MARLIN_CUDA_FORM(scale, zero, shift) {scale, zero, shift},
constexpr Form kFp4[] = {MARLIN_CUDA_FORMS_fp4(MARLIN_CUDA_FORM)};
constexpr Form kU4[] = {MARLIN_CUDA_FORMS_u4(MARLIN_CUDA_FORM)};
constexpr Form kI8[] = {MARLIN_CUDA_FORMS_i8(MARLIN_CUDA_FORM)};
constexpr Form kFp4Sparse[] = {MARLIN_CUDA_FORMS_fp4_sparse(MARLIN_CUDA_FORM)};
constexpr Form kU4Sparse[] = {MARLIN_CUDA_FORMS_u4_sparse(MARLIN_CUDA_FORM)};
constexpr Form kHopperFp4[] = {MARLIN_HOPPER_FORMS_fp4(MARLIN_CUDA_FORM)};
constexpr Form kHopperU4[] = {MARLIN_HOPPER_FORMS_u4(MARLIN_CUDA_FORM)};
constexpr Form kHopperI8[] = {MARLIN_HOPPER_FORMS_i8(MARLIN_CUDA_FORM)};
constexpr Form kMmaFp4[] = {MARLIN_MMA_FORMS_fp4(MARLIN_CUDA_FORM)};
constexpr Form kMmaU4[] = {MARLIN_MMA_FORMS_u4(MARLIN_CUDA_FORM)};
constexpr Form kMmaI8[] = {MARLIN_MMA_FORMS_i8(MARLIN_CUDA_FORM)};
constexpr Form kWgmmaFp4[] = {MARLIN_WGMMA_FORMS_fp4(MARLIN_CUDA_FORM)};
constexpr Form kWgmmaU4[] = {MARLIN_WGMMA_FORMS_u4(MARLIN_CUDA_FORM)};
constexpr Form kWgmmaI8[] = {MARLIN_WGMMA_FORMS_i8(MARLIN_CUDA_FORM)};
#undef MARLIN_CUDA_FORM

template <size_t COUNT>
bool is_in(const gpu::RowBlockLayout& layout, const Form (&forms)[COUNT]) {
  const Form form{layout.scale_constant(), layout.zero_constant(), layout.group_shift_constant()};
  return std::find(forms, forms + COUNT, form) != forms + COUNT;
}

/// Of MARLIN_HOPPER_FORMS, which are dense.
bool has_ring(const gpu::RowBlockLayout& layout, gpu::ActivationKind) {
  if (layout.codes == gpu::KernelCodes::fp4) return is_in(layout, kHopperFp4);
  if (layout.codes == gpu::KernelCodes::i8) return is_in(layout, kHopperI8);
  return layout.codes == gpu::KernelCodes::u4 && is_in(layout, kHopperU4);
}

/// Of MARLIN_MMA_FORMS.
bool has_mma(const gpu::RowBlockLayout& layout, gpu::ActivationKind) {
  if (layout.codes == gpu::KernelCodes::fp4) return is_in(layout, kMmaFp4);
  if (layout.codes == gpu::KernelCodes::i8) return is_in(layout, kMmaI8);
  return layout.codes == gpu::KernelCodes::u4 && is_in(layout, kMmaU4);
}

/// Of 16 rows, whose teams leave INT8 codes too few registers.
bool has_mma_of_16(const gpu::RowBlockLayout& layout, gpu::ActivationKind activation) {
  return layout.codes != gpu::KernelCodes::i8 && has_mma(layout, activation);
}

/// Of MARLIN_WGMMA_FORMS. Scales that bfloat16 and float16 products of a code and a scale hold
/// exactly are multiplied into weights. Others are units of sums, and must be float16 (kHasWgmma of
/// shaders/cuda/operand.cuh).
bool has_wgmma(const gpu::RowBlockLayout& layout, gpu::ActivationKind activation) {
  if (layout.codes == gpu::KernelCodes::u4) return is_in(layout, kWgmmaU4);
  if (layout.codes == gpu::KernelCodes::i8) return is_in(layout, kWgmmaI8);
  const bool exact =
      layout.scale_type != ScaleType::e8m0 || activation == gpu::ActivationKind::bf16;
  return layout.codes == gpu::KernelCodes::fp4 && is_in(layout, kWgmmaFp4) && exact;
}

/// Of 192 and 256 rows. INT8 codes leave less room (kHasRoom of shaders/cuda/hopper_gemm.cuh).
bool has_wgmma_of_192(const gpu::RowBlockLayout& layout, gpu::ActivationKind activation) {
  const bool is_long = layout.group_shift_constant() == kLongGroup;
  return (layout.codes != gpu::KernelCodes::i8 || is_long) && has_wgmma(layout, activation);
}
bool has_wgmma_of_256(const gpu::RowBlockLayout& layout, gpu::ActivationKind activation) {
  return layout.codes != gpu::KernelCodes::i8 && has_wgmma(layout, activation);
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
/// Integers in groups of less than 128 slots leave no registers for more (kSortsMany of
/// shaders/cuda/ring.cuh).
Sorts routes_of_ring(const gpu::RowBlockLayout& layout) {
  const bool fp4 = layout.codes == gpu::KernelCodes::fp4;
  const bool is_long = layout.group_shift_constant() == kLongGroup;
  return fp4 || is_long || layout.zero_kind == ZeroKind::additive ? Sorts::many : Sorts::few;
}
/// Tiles add up gathered rows over groups for additive zeros.
Sorts routes_of_mma(const gpu::RowBlockLayout& layout) {
  return layout.zero_kind == ZeroKind::additive ? Sorts::none : Sorts::many;
}
/// Tiles of wgmma get A from the copy engine, which takes gathered rows.
constexpr SortsOf sorts_of_hopper(std::string_view family) {
  if (family == "ring") return routes_of_ring;
  return family == "mma" ? routes_of_mma : nullptr;
}

#define MARLIN_CUDA_PRODUCT(family, suffix, m_min, m_max, rows, columns, threads, groups)          \
  {{MARLIN_GPU_ACTIVATIONS(family "_fp4_", suffix), MARLIN_GPU_ACTIVATIONS(family "_u4_", suffix), \
    MARLIN_GPU_ACTIVATIONS(family "_i8_", suffix),                                                 \
    MARLIN_GPU_ACTIVATIONS(family "_fp4_sparse_", suffix),                                         \
    MARLIN_GPU_ACTIVATIONS(family "_u4_sparse_", suffix)},                                         \
   m_min,                                                                                          \
   m_max,                                                                                          \
   rows,                                                                                           \
   columns,                                                                                        \
   threads,                                                                                        \
   true,                                                                                           \
   false,                                                                                          \
   groups,                                                                                         \
   kernel_is_row_invariant(family, suffix),                                                        \
   nullptr,                                                                                        \
   false,                                                                                          \
   false,                                                                                          \
   1,                                                                                              \
   0,                                                                                              \
   0,                                                                                              \
   0,                                                                                              \
   std::string_view(family) == "gemv" ? few_routes : nullptr},
#define MARLIN_HOPPER_ACTIVATIONS(prefix, suffix) \
  {"", prefix "f16_" suffix, prefix "bf16_" suffix, ""}
#define MARLIN_HOPPER_PRODUCT(family, suffix, m_min, m_max, rows, columns, threads, shared_bytes, \
                              activation_bytes, fp4_chunk_ns, chunk_ns, serves)                   \
  {{MARLIN_HOPPER_ACTIVATIONS(family "_fp4_", suffix),                                            \
    MARLIN_HOPPER_ACTIVATIONS(family "_u4_", suffix),                                             \
    MARLIN_HOPPER_ACTIVATIONS(family "_i8_", suffix),                                             \
    {},                                                                                           \
    {}},                                                                                          \
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
   (fp4_chunk_ns) != 0,                                                                           \
   tile_cluster_of(rows),                                                                         \
   fp4_chunk_ns,                                                                                  \
   chunk_ns,                                                                                      \
   activation_bytes,                                                                              \
   sorts_of_hopper(family),                                                                       \
   true},
constexpr gpu::ProductKernel kProducts[] = {
#include "backends/cuda/kernels.inc"
};
#undef MARLIN_CUDA_PRODUCT
#undef MARLIN_HOPPER_PRODUCT
static_assert(std::size(kProducts) <= gpu::kMostProductKernels);

}  // namespace

std::span<const Form> forms_of(gpu::KernelCodes codes) {
  switch (codes) {
    case gpu::KernelCodes::fp4:
      return kFp4;
    case gpu::KernelCodes::u4:
      return kU4;
    case gpu::KernelCodes::i8:
      return kI8;
    case gpu::KernelCodes::fp4_sparse:
      return kFp4Sparse;
    case gpu::KernelCodes::u4_sparse:
      return kU4Sparse;
    default:
      return {};
  }
}

const gpu::Policy& policy() {
  static constexpr gpu::Policy kPolicy{kProducts, gpu::SlotOrder::mma, "cuda"};
  return kPolicy;
}

}  // namespace metal_marlin::cuda
