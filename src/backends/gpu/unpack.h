// Decodes rows of packed weights on a GPU.
#pragma once

#include "backends/gpu/kernels.h"
#include "backends/gpu/operands.h"
#include "backends/gpu/stream.h"
#include "backends/gpu/weights.h"
#include "core/backend.h"

namespace metal_marlin::gpu {

/// Checks that listed ids that the host can read are inside [0, n). MARLIN_E_ARGUMENT names the
/// first that is not.
Status check_ids(device::Device& device, const RowSelection& rows, int64_t count, int64_t n);

/// Records the decoding. `ids` is read if rows.ids is present; an id outside [0, n) gives a row of
/// NaN.
Status record_unpack(KernelCache& kernels, GpuStream& stream, const GpuWeights& weights,
                     const RowSelection& rows, const Matrix& ids, const MatrixView& out,
                     const Matrix& to);

}  // namespace metal_marlin::gpu
