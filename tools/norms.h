// Norms of activations' columns from a file: what pruning by |w| * norm (Wanda) asks for.
#pragma once

#include <string>
#include <vector>

#include "library.h"

namespace metal_marlin::tools {

/// A .safetensors file that has, under the name of each layer to be pruned, a float32 tensor of its
/// K norms.
class Norms {
 public:
  /// Failure when the file cannot be opened.
  explicit Norms(std::string path) : path_(std::move(path)), checkpoint_(open_checkpoint(path_)) {}
  /// The K norms of `layer`. Failure when there is no such tensor, or one of another type or
  /// length: pruning by magnitude in its place would be another result than was asked for. Signs
  /// and infinities are the library's to judge.
  std::vector<float> of(const marlin_layer_info& layer) const;

 private:
  std::string path_;
  Checkpoint checkpoint_;
};

}  // namespace metal_marlin::tools
