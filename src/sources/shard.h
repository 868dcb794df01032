// Rows and columns of a matrix.
#pragma once

#include <cstdint>
#include <memory>

#include "base/status.h"
#include "formats/weights.h"

namespace metal_marlin {

/// Rows [first_n, first_n + count_n) and columns [first_k, first_k + count_k) of another source,
/// which it owns and has narrowed (WeightSource::narrow). A border that the weights do not allow is
/// MARLIN_E_SHAPE with the nearest ones that they allow.
Result<std::unique_ptr<WeightSource>> make_shard(std::unique_ptr<WeightSource> source,
                                                 int64_t first_n, int64_t count_n, int64_t first_k,
                                                 int64_t count_k);

}  // namespace metal_marlin
