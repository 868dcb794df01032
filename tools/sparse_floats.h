// Reads the values of a 2:4 sparse layer that is not quantized from the file.
#pragma once

#include <cstdint>
#include <string>

#include "metal_marlin/metal_marlin.h"

namespace metal_marlin::tools {

/// Pruned floats of compressed-tensors: kept elements and a bitmask. Borrows from the checkpoint.
class SparseFloats {
 public:
  SparseFloats(const marlin_checkpoint* checkpoint, const marlin_layer_info& layer);
  /// Reads rows [first, first + count) as float32 [count, k].
  void read(int64_t first, int64_t count, float* out) const;

 private:
  void read_row(int64_t row, float* out) const;

  marlin_layer_info layer_;
  marlin_matrix values_{}, bitmask_{};
};

}  // namespace metal_marlin::tools
