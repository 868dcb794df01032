#include "backends/cuda/policy.h"

#include <algorithm>

#include "shaders/common/cuda_parameters.h"

namespace metal_marlin::cuda {
namespace {

using gpu::ActivationKind, gpu::KernelCodes, gpu::ProductKernel, gpu::RowBlockLayout;
using gpu::kTensor;
using gpu::Schedule, gpu::SortedRows;

// What kernels are compiled for (ProductKernel::compiled_for).
constexpr bool general_kernels(KernelCodes codes, ActivationKind activation) {
  if (codes == KernelCodes::planes || codes == KernelCodes::floats) return false;
  if (activation == ActivationKind::e4m3) return false;
  return activation != ActivationKind::i8 || !(codes == KernelCodes::e4m3 || gpu::is_real(codes));
}
constexpr bool looked_up_kernels(KernelCodes codes, ActivationKind activation) {
  return gpu::are_halves(activation) && codes == KernelCodes::lut4;
}
constexpr bool w16_kernels(KernelCodes codes, ActivationKind activation) {
  return looked_up_kernels(codes, activation) ||
         (gpu::are_halves(activation) &&
          (codes == KernelCodes::u4 || codes == KernelCodes::i8 || codes == KernelCodes::e4m3));
}
/// Dense weights that are no floats of 16 bits yet; of FP4, tiles for bfloat16 activations leave
/// nothing to gain.
constexpr bool expanded_kernels(KernelCodes codes, ActivationKind activation) {
  const bool f16 = activation == ActivationKind::f16;
  if (codes == KernelCodes::fp4) return f16;
  if (gpu::holds_halves(codes))
    return f16 == (codes == KernelCodes::bf16) && gpu::are_halves(activation);
  return gpu::are_halves(activation) && (gpu::are_bytes(codes) || codes == KernelCodes::u4 ||
                                         codes == KernelCodes::lut4 || codes == KernelCodes::f32);
}
/// Floats of 16 bits are multiplied by their like as they are.
constexpr bool tile_kernels(KernelCodes codes, ActivationKind activation) {
  if (codes == KernelCodes::f16) return activation == ActivationKind::f16;
  if (codes == KernelCodes::bf16) return activation == ActivationKind::bf16;
  return gpu::are_halves(activation) && (codes == KernelCodes::fp4 || codes == KernelCodes::u4 ||
                                         codes == KernelCodes::i8 || codes == KernelCodes::e4m3);
}
/// Integers by INT8 activations.
constexpr bool integer_kernels(KernelCodes codes, ActivationKind activation) {
  return activation == ActivationKind::i8 && (codes == KernelCodes::u4 || codes == KernelCodes::i8);
}
constexpr bool e4m3_kernels(KernelCodes codes, ActivationKind activation) {
  return activation == ActivationKind::e4m3 && codes == KernelCodes::e4m3;
}
constexpr bool ring_kernels(KernelCodes codes, ActivationKind activation) {
  const bool sparse = codes == KernelCodes::fp4_sparse || codes == KernelCodes::u4_sparse;
  return tile_kernels(codes, activation) || (sparse && gpu::are_halves(activation));
}

const Form* form_of(const RowBlockLayout& layout) {
  return find_form(layout.codes, layout.scale_constant(), layout.zero_constant(),
                   layout.group_shift_constant());
}
bool has_tiles(const RowBlockLayout& layout, FormTiles least) {
  const Form* const form = form_of(layout);
  return form != nullptr && form->tiles >= least;
}
/// Kernels read no scales of floats.
bool has_float32_scales(const RowBlockLayout& layout) {
  return layout.scale_type == ScaleType::f32 && !gpu::are_floats(layout.codes);
}
bool has_steady_scales(const RowBlockLayout& layout) {
  return !has_float32_scales(layout) || layout.steady_scales;
}
uint32_t words_of(const RowBlockLayout& layout) {
  return static_cast<uint32_t>(layout.words(kLanes));
}

/// Slots whose products of signed bytes an int32 holds the sum of.
constexpr int64_t kMostIntegerSlots = INT32_MAX / (128 * 127);

// Whether kernels serve weights and activations (ProductKernel::serves).
bool has_ring(const ProductKernel&, const RowBlockLayout& layout, ActivationKind) {
  return form_of(layout) != nullptr;
}
bool has_mma(const ProductKernel& kernel, const RowBlockLayout& layout, ActivationKind) {
  return has_tiles(layout, FormTiles::mma) &&
         has_tile_of(static_cast<uint32_t>(kernel.rows), words_of(layout),
                     has_float32_scales(layout), layout.group_shift_constant());
}
/// Scales that are units of sums must have ratios that are far from the ends of float32.
bool has_wgmma(const ProductKernel& kernel, const RowBlockLayout& layout,
               ActivationKind activation) {
  return has_tiles(layout, FormTiles::wgmma) && has_mma(kernel, layout, activation) &&
         has_steady_scales(layout) &&
         has_wgmma_of(layout.scale_constant(), activation == ActivationKind::bf16);
}
bool has_w16(const ProductKernel& kernel, const RowBlockLayout& layout, ActivationKind) {
  return has_steady_scales(layout) && form_of(layout) != nullptr &&
         has_rounding_tile_of(static_cast<uint32_t>(kernel.rows), words_of(layout),
                              has_float32_scales(layout), layout.zero_kind != ZeroKind::none,
                              layout.group_shift_constant());
}
/// Rows have one scale.
bool has_integers(const ProductKernel& kernel, const RowBlockLayout& layout, ActivationKind) {
  const Form* const form = form_of(layout);
  return form != nullptr && form->scale == kScaleF16 && form->shift == kLongGroupShift &&
         has_byte_tile_of(static_cast<uint32_t>(kernel.rows), words_of(layout)) &&
         layout.quads == 1 && layout.slots <= kMostIntegerSlots;
}
bool has_e4m3(const ProductKernel&, const RowBlockLayout& layout, ActivationKind) {
  return form_of(layout) != nullptr && has_steady_scales(layout);
}

// The routed rows that the blocks of a kernel sort (ProductKernel::sorts). Tiles of wgmma get A
// from the copy engine, which takes gathered rows.
SortedRows few_rows(const RowBlockLayout&) { return SortedRows::few; }
SortedRows many_rows(const RowBlockLayout&) { return SortedRows::many; }
SortedRows sorted_by_ring(const RowBlockLayout& layout) {
  const bool many = ring_sorts_many(layout.codes == KernelCodes::fp4, gpu::are_floats(layout.codes),
                                    layout.zero_constant(), layout.group_shift_constant());
  return many ? SortedRows::many : SortedRows::few;
}
/// Tiles add up gathered rows over groups for additive zeros.
SortedRows sorted_by_mma(const RowBlockLayout& layout) {
  return layout.zero_kind == ZeroKind::additive ? SortedRows::none : SortedRows::many;
}

constexpr ProductKernel kProducts[] = {
#define MARLIN_GPU_KERNEL(names, ...) {.pattern = names, __VA_ARGS__},
#include "backends/cuda/kernels.inc"
#undef MARLIN_GPU_KERNEL
};

/// What the shaders know of their tiles, too.
constexpr bool agrees_with_shaders(const ProductKernel& row) {
  const auto rows = static_cast<uint32_t>(row.rows);
  return !row.shares_tiles() ||
         (row.threads == tile_threads_of(rows) && row.groups_of_tile == tile_cluster_of(rows));
}
static_assert(std::ranges::all_of(kProducts, agrees_with_shaders));

}  // namespace

const Form* find_form(KernelCodes codes, uint32_t scale, uint32_t zero, uint32_t shift) {
  const auto of = [&](std::span<const Form> forms) {
    const auto is_it = [&](const Form& form) {
      return form.scale == scale && form.zero == zero && form.shift == shift;
    };
    const auto found = std::ranges::find_if(forms, is_it);
    return found == forms.end() ? nullptr : &*found;
  };
#define MARLIN_FORM(...) {__VA_ARGS__},
#define MARLIN_FORMS_OF(codes_)                                            \
  case KernelCodes::codes_: {                                              \
    using enum FormTiles;                                                  \
    static constexpr Form kForms[] = {MARLIN_FORMS_##codes_(MARLIN_FORM)}; \
    return of(kForms);                                                     \
  }
  switch (codes) {
    MARLIN_FORMS_OF(fp4)
    MARLIN_FORMS_OF(u4)
    MARLIN_FORMS_OF(i8)
    MARLIN_FORMS_OF(e4m3)
    MARLIN_FORMS_OF(lut4)
    MARLIN_FORMS_OF(f16)
    MARLIN_FORMS_OF(bf16)
    MARLIN_FORMS_OF(fp4_sparse)
    MARLIN_FORMS_OF(u4_sparse)
    default:
      return nullptr;
  }
#undef MARLIN_FORMS_OF
#undef MARLIN_FORM
}

const gpu::Policy& policy() {
  static constexpr gpu::Policy kPolicy{.kernels = gpu::checked_rows<kProducts>(),
                                       .order = gpu::SlotOrder::mma,
                                       .reads = gpu::is_wide,
                                       .rounds_to_e4m3 = true};
  return kPolicy;
}

}  // namespace metal_marlin::cuda
