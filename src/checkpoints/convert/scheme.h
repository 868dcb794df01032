// Schemes: the families of files that the library writes. A scheme takes the encoder of a layout
// and adds the names of tensors and the config.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "checkpoints/convert/json_writer.h"
#include "formats/weights.h"
#include "layouts/encoder.h"
#include "layouts/layout_table.h"

namespace metal_marlin {

/// The description of a layer that is to be written.
struct SchemeTarget {
  std::string base;      ///< the layer's name without ".weight"
  std::string tensor;    ///< the name of its tensor of floats
  uint32_t experts = 1;  ///< with more than one, tensors get a leading dimension
  WeightMeta meta;       ///< of one expert; its tensor scale may differ from expert to expert
};

/// One tensor that is to be written.
struct NamedTensor {
  std::string name;
  EncodedTensor tensor;
};

/// The layers of a file, for its config.
struct Described {
  /// What all layers have in common. meta.group_size is the requested size; meta.groups is 1 if no
  /// row has more.
  WeightMeta meta;
  std::span<const std::string> ignore;  ///< the layers that stay floats
  /// The layers that are written, by their base names.
  std::span<const std::pair<std::string, WeightMeta>> layers;
};

/// One family of files.
struct Scheme {
  marlin_scheme number;
  const char* name;       ///< "compressed-tensors"
  bool gguf = false;      ///< its container; else safetensors
  bool divides = false;   ///< its NVFP4 tensor scale divides
  bool sparse = false;    ///< stores the pattern of 2:4 sparse weights; else they are written
                          ///< densely, with codes of 0 between
  bool additive = false;  ///< integers have additive zeros
  /// If none is requested, of formats that leave it open; 0: the format's.
  int64_t default_group = 0;
  LayoutId layout;  ///< the row whose encoder it takes
  /// The suffix of a tensor's name, by its role, after the base name of the layer. Null: the tensor
  /// keeps the name of the floats.
  const char* suffixes[kTensorRoles] = {};
  /// The member of config.json that says how layers are quantized.
  const char* config_key = "quantization_config";
  /// Writes its members; null for containers that need none.
  void (*describe)(const Described& layers, JsonWriter& config) = nullptr;
  const char* own_config = nullptr;  ///< a file of its own that holds the same; or null

  LayoutEncoder encoder() const { return layout_row(layout).encoder(); }
};

/// Null for a number that is not a scheme.
const Scheme* scheme_row(marlin_scheme number);

/// The tensors of the layer in the order of the encoder; MARLIN_E_UNSUPPORTED or MARLIN_E_SHAPE if
/// this matrix does not fit.
Result<std::vector<NamedTensor>> scheme_tensors(const Scheme& scheme, const SchemeTarget& target);

}  // namespace metal_marlin
