// Packs canonical weights into the layout of layout.h, and unpacks them.
#pragma once

#include <cstdint>
#include <memory>

#include "backends/cpu/layout.h"
#include "core/backend.h"
#include "core/tasks.h"
#include "formats/weights.h"

namespace metal_marlin::cpu {

/// Packs panels of 64 rows in parallel. In addition to the result, each thread holds one stripe of
/// the source. The meta of the source must have passed check_meta(). Errors are
/// MARLIN_E_UNSUPPORTED for groups that the layout cannot hold, MARLIN_E_MEMORY, and those of the
/// source.
Result<std::unique_ptr<CpuWeights>> pack_weights(const WeightSource& source,
                                                 const Allocator& allocator, TaskRunner& runner);

/// What pack_weights() of a matrix of this meta takes, or its MARLIN_E_UNSUPPORTED.
Result<uint64_t> packed_bytes(const WeightMeta& meta);

/// The bytes of these weights as a file keeps them. They live as long as the weights.
PackedMatrix packed_matrix(const CpuWeights& weights);
/// What a container says of one matrix, without its bytes and the entries of its group index:
/// MARLIN_E_FORMAT if the meta does not lead to as many bytes, slots and slot groups, and the error
/// of a meta that is none of this version.
Status check_packed(const PackedMatrix& matrix, uint64_t bytes, bool has_index);
/// Weights over bytes that pack_weights() made, perhaps in another process, used in place. `memory`
/// keeps the bytes alive. MARLIN_E_FORMAT if the meta does not lead to as many bytes, slots and
/// slot groups; the values of the bytes are not looked at.
Result<std::unique_ptr<CpuWeights>> adopt_weights(const PackedMatrix& matrix,
                                                  std::shared_ptr<const void> memory);

/// Decodes rows to out [T, k], F32, F16 or BF16, in the file's order of k. The true value is
/// rounded once to float32 and then once to the dtype of out. If an id is wrong
/// (MARLIN_E_ARGUMENT), nothing is written.
Status unpack_rows(const CpuWeights& weights, const RowSelection& rows, const MatrixView& out,
                   TaskRunner& runner);

/// PackedReader::source_of().
Result<std::unique_ptr<WeightSource>> packed_source(const CpuWeights& weights);

}  // namespace metal_marlin::cpu
