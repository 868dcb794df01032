// Canonical weights into the layout of the GPU kernels. Writes to memory that somebody else has
// allocated; knows no device.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backends/gpu/layout.h"
#include "base/status.h"
#include "core/tasks.h"
#include "formats/weights.h"

namespace metal_marlin::gpu {

/// How E8M0 scales are stored.
enum class Exponents : uint8_t {
  bytes,   ///< a byte each, shifted by row: right for rows whose exponents span up to 239
  floats,  ///< as float32: any span, four times the bytes
};

struct PackPlan {
  WeightMeta meta;  ///< the source's, without a group_index that says no more than k / group_size
  PackedLayout layout;
  std::vector<int32_t> slot_to_k;  ///< [slots], -1: padding; empty: slot s is k s
  std::vector<int32_t> groups;     ///< the file's group of each quad, -1: padding
};

/// The meta has passed check_meta(). MARLIN_E_UNSUPPORTED for groups that the layout cannot hold,
/// MARLIN_E_SHAPE for sizes that do not fit the address space.
Result<PackPlan> plan_packing(const WeightMeta& meta, Exponents exponents = Exponents::bytes);

/// Fills `to`, plan.layout.bytes of any alignment, row blocks in parallel; besides, it holds a
/// stripe of 32 rows a thread. False: the exponents of some row do not fit bytes, and the matrix
/// must be planned and packed anew with Exponents::floats. (One matrix in a great many; asking the
/// scales first would read every file twice.) Or the source's own error, or MARLIN_E_MEMORY.
Result<bool> pack_weights(const WeightSource& source, const PackPlan& plan, std::span<std::byte> to,
                          TaskRunner& runner);

}  // namespace metal_marlin::gpu
