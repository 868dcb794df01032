// The norms of the columns of activations, which weigh the columns of weights.
#pragma once

#include <string>
#include <vector>

#include "imatrix.h"
#include "library.h"

namespace metal_marlin::tools {

/// A .safetensors file with a float32 tensor of K norms for each layer, under the name of the
/// layer; or an importance matrix of llama.cpp, as a GGUF or in its older form.
class Norms {
 public:
  /// Failure if the file cannot be opened.
  explicit Norms(std::string path);
  /// The K norms of `layer`. Of an importance matrix they are the roots of its means, of a stack of
  /// experts over all experts; empty if it has none of this layer, as llama.cpp has none of
  /// embeddings. Failure if another file has no such tensor, or if it has another type or length,
  /// because other norms would give another result than requested. The library checks signs and
  /// infinities.
  std::vector<float> of(const marlin_layer_info& layer) const;

 private:
  std::vector<float> tensor(const std::string& name, int64_t rows, int64_t k) const;
  std::vector<float> importance(const marlin_layer_info& layer) const;

  std::string path_;
  enum class Kind { norms, gguf, imatrix };
  Kind kind_ = Kind::norms;
  Checkpoint checkpoint_;  ///< none for Kind::imatrix
  ImportanceSums sums_;    ///< for it
};

/// The norms of some layers of a model as the library takes them.
class LayerNorms {
 public:
  /// `path` "": none. Failure also if writing `output` could replace the file of the norms, or if
  /// it knows none of the layers.
  LayerNorms(const std::string& path, const std::string& output, const marlin_checkpoint* model,
             const std::vector<const char*>& layers);
  /// One matrix a layer; null if there is no file.
  const marlin_matrix* data() const { return matrices_.empty() ? nullptr : matrices_.data(); }

 private:
  std::vector<std::vector<float>> values_;
  std::vector<marlin_matrix> matrices_;
};

}  // namespace metal_marlin::tools
