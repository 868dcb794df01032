// Schemes: the families of files that are written. A scheme takes a layout's encoder and adds what
// is knowledge of files: the names of tensors and the config.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "checkpoints/convert/json_writer.h"
#include "formats/weights.h"
#include "layouts/encoder.h"
#include "layouts/layout_table.h"

namespace metal_marlin {

/// What a layer is to become.
struct SchemeTarget {
  std::string base;      ///< the layer's name without ".weight"
  std::string tensor;    ///< the name of its tensor of floats
  uint32_t experts = 1;  ///< tensors get a leading dimension when there are more
  WeightMeta meta;       ///< of one expert; its tensor scale may differ from expert to expert
};

/// One tensor that is to be written.
struct NamedTensor {
  std::string name;
  EncodedTensor tensor;
};

/// One family of files.
struct Scheme {
  marlin_scheme number;
  const char* name;  ///< "compressed-tensors"
  bool gguf;         ///< its container; else safetensors
  bool divides;      ///< its NVFP4 tensor scale divides
  bool sparse;  ///< stores the pattern of 2:4 sparse weights; else they are written densely, with
                ///< codes of 0 between
  int64_t default_group;  ///< of INT4 when none is asked for; 0: the format's own
  LayoutId layout;        ///< the row whose encoder it takes
  /// What a tensor's name is, by its role: behind the layer's base; null: the name that the floats
  /// had.
  const char* suffixes[kTensorRoles];
  /// Writes the members of config.json's quantization_config; null for containers that need none.
  /// `ignore`: layers of floats that stay so. meta.group_size is what was asked for; meta.groups is
  /// 1 when no row has more.
  void (*describe)(const WeightMeta& meta, std::span<const std::string> ignore, JsonWriter& config);
  const char* own_config;  ///< a file of its own that holds the same; or null

  LayoutEncoder encoder() const { return layout_row(layout).encoder(); }
};

/// Null for a number that is no scheme.
const Scheme* scheme_row(marlin_scheme number);

/// The layer's tensors in the encoder's order; MARLIN_E_UNSUPPORTED or MARLIN_E_SHAPE when this
/// matrix does not fit.
Result<std::vector<NamedTensor>> scheme_tensors(const Scheme& scheme, const SchemeTarget& target);

}  // namespace metal_marlin
