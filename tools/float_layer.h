// Reads the values of a layer that is not quantized from the file.
#pragma once

#include <cstdint>
#include <string>

#include "metal_marlin/metal_marlin.h"

namespace metal_marlin::tools {

/// Dense floats, or pruned floats of compressed-tensors (kept elements and a bitmask). Borrows from
/// the checkpoint.
class FloatLayer {
 public:
  FloatLayer(const marlin_checkpoint* checkpoint, const marlin_layer_info& layer);
  /// Reads rows [first, first + count) of one expert (0 for plain layers) as float32 [count, k].
  void read(uint32_t expert, int64_t first, int64_t count, float* out) const;

 private:
  void read_sparse_row(int64_t row, float* out) const;

  marlin_layer_info layer_;
  marlin_matrix values_{}, bitmask_{};  ///< bitmask_.data NULL: dense
};

}  // namespace metal_marlin::tools
