// Packs canonical weights into the layout of the GPU kernels. Writes to memory of the caller and
// knows no device.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backends/gpu/layout.h"
#include "base/status.h"
#include "core/packed_form.h"
#include "core/tasks.h"
#include "formats/weights.h"

namespace metal_marlin::gpu {

struct Policy;

/// The form of stored E8M0 scales.
enum class Exponents : uint8_t {
  bytes,   ///< a byte each, shifted by row: right for rows whose exponents span up to 239
  floats,  ///< as float32: any span, four times the bytes
};

struct PackPlan {
  WeightMeta meta;  ///< of the source, without a group_index that equals k / group_size
  RowBlockLayout layout;
  std::vector<int32_t> slot_to_k;  ///< [slots], -1: padding; empty: slot s is k s
  std::vector<int32_t> groups;     ///< the file's group of each quad, -1: padding
};

/// The meta must have passed check_meta(). Groups that the layout cannot hold are
/// MARLIN_E_UNSUPPORTED. Sizes that do not fit the address space are MARLIN_E_SHAPE.
Result<PackPlan> plan_packing(const WeightMeta& meta, Exponents exponents = Exponents::bytes,
                              SlotOrder order = SlotOrder::simdgroup);

/// Fills `to`, plan.layout.bytes of any alignment, with row blocks in parallel. Each thread also
/// holds a stripe of 32 rows. Returns false if the exponents of some row do not fit bytes; the
/// matrix must then be planned and packed again with Exponents::floats. (This is very rare, and
/// checking the scales first would read every file twice.) Errors are those of the source and
/// MARLIN_E_MEMORY.
Result<bool> pack_weights(const WeightSource& source, const PackPlan& plan, std::span<std::byte> to,
                          TaskRunner& runner);

/// The form of files with packed weights of this order. PackedMatrix::own is the layout's
/// plan_bits().
PackedForm packed_form(SlotOrder order);
/// What a container says of one matrix, without its bytes and the entries of its group index:
/// MARLIN_E_FORMAT if its numbers are none that packing for these kernels leads to.
Status check_packed(const PackedMatrix& matrix, uint64_t bytes, bool has_index,
                    const Policy& policy);
/// The plan by which a matrix of a file was packed. Everything is checked but its bytes.
Result<PackPlan> plan_of_packed(const PackedMatrix& matrix, const Policy& policy);

}  // namespace metal_marlin::gpu
