// Reads the norms of the columns of activations from a file, for pruning by |w| * norm (Wanda).
#pragma once

#include <string>
#include <vector>

#include "library.h"

namespace metal_marlin::tools {

/// A .safetensors file with a float32 tensor of K norms for each layer to be pruned, under the name
/// of the layer.
class Norms {
 public:
  /// Failure if the file cannot be opened.
  explicit Norms(std::string path) : path_(std::move(path)), checkpoint_(open_checkpoint(path_)) {}
  /// The K norms of `layer`. Failure if there is no such tensor, or if it has another type or
  /// length, because pruning by magnitude instead would give another result than requested. The
  /// library checks signs and infinities.
  std::vector<float> of(const marlin_layer_info& layer) const;

 private:
  std::string path_;
  Checkpoint checkpoint_;
};

}  // namespace metal_marlin::tools
