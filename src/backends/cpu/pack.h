// Canonical weights into the layout of layout.h, and back.
#pragma once

#include <cstdint>
#include <memory>

#include "backends/cpu/layout.h"
#include "core/backend.h"
#include "core/tasks.h"
#include "formats/weights.h"

namespace metal_marlin::cpu {

/// Packs a panel of 64 rows at a time, panels in parallel; besides the result it holds one stripe
/// of the source a thread. The source's meta has passed check_meta(). MARLIN_E_UNSUPPORTED for
/// groups that the layout cannot hold, MARLIN_E_MEMORY, or the source's own error.
Result<std::unique_ptr<CpuWeights>> pack_weights(const WeightSource& source,
                                                 const Allocator& allocator, TaskRunner& runner);

/// Decodes rows to out [T, k], F32, F16 or BF16, in the file's order of k: the true value rounded
/// once to float32, then once to out's dtype. Nothing is written when one of the ids is wrong
/// (MARLIN_E_ARGUMENT).
Status unpack_rows(const CpuWeights& weights, const RowSelection& rows, const MatrixView& out,
                   TaskRunner& runner);

}  // namespace metal_marlin::cpu
