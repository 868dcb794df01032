// Which of a policy's kernels runs a product.
#pragma once

#include <cstdint>

#include "backends/gpu/plan.h"

namespace metal_marlin::gpu {

/// The form in which a kernel would read the activations of a problem.
ActivationKind activation_of(const ProductKernel& kernel, const GemmProblem& problem);
/// Tiles of a product that is not split.
int64_t tile_count(const ProductKernel& kernel, int64_t m, int64_t n);
/// Tiles of the product of `size` rows of A or tokens, of whose routes nothing is known: their ids
/// are taken to be spread at random.
int64_t expected_tiles(const ProductKernel& kernel, const GemmProblem& problem, int64_t size);
/// Above this many rows, the choice among kernels that share tiles no longer changes, unless some
/// expand the weights.
inline constexpr int64_t kMostTileEdges = 1024;
/// The most bytes of expanded weights.
inline constexpr int64_t kMostExpandedBytes = 512 << 20;
/// The M for which a kernel is chosen. With routing: the T, rounded up to one of four numbers of an
/// octave, so that few are all there are; the same of many rows whose weights may be expanded.
int64_t size_of_choice(const GemmProblem& problem, int64_t size);
/// The blocks of threadgroups that take `tiles` tiles in turn so that none is shared, if that is
/// estimated to take less time than sharing them among all that the device runs at once; else 0.
int64_t groups_of_whole_tiles(const ProductKernel& kernel, const RowBlockLayout& layout,
                              int64_t tiles, const device::Capabilities& device);
/// The estimated nanoseconds of a product of M rows (with routing: of T tokens, whose ids are
/// spread at random) by a kernel whose threadgroups share tiles.
int64_t estimated_ns(const ProductKernel& kernel, const GemmProblem& problem, int64_t size,
                     const device::Capabilities& device);
/// The best kernel for M (with routing: T) = max(size, 1), of those that are not known to be bad.
Result<const ProductKernel*> choose_product_kernel(const GemmProblem& problem, int64_t size,
                                                   const PlanRules& rules,
                                                   const KernelHealth::Reader& health);

}  // namespace metal_marlin::gpu
