// Reads from the config files beside the tensors how the tensors were quantized.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "checkpoints/folder.h"
#include "checkpoints/group_sizes.h"
#include "checkpoints/tensor_table.h"

namespace metal_marlin {

/// Sizes of the language model that the config describes; 0 or "": it does not say.
struct ModelSizes {
  int64_t hidden = 0;        ///< elements of a token's state
  int64_t intermediate = 0;  ///< rows of gate or up of one expert
  int64_t experts = 0;       ///< of a layer
  std::string model_type;
};

/// Everything is optional; the names and types of tensors decide if the config says nothing. Texts
/// are in lower case and cut after 64 bytes, which is longer than any text with a meaning.
struct QuantConfig {
  std::string_view
      text;  ///< of config.json as it is; "" when there is none; lives as long as the folder
  std::string method;  ///< quant_method: "gptq", "awq", "compressed-tensors", "mxfp4", "modelopt",
                       ///< "quark", "mlx"
  std::string
      format;  ///< checkpoint_format, version or format: "gptq_v2", "gemm", "pack-quantized"
  std::string version;  ///< of compressed-tensors that wrote the file: "0.10.2"
  std::optional<int64_t> bits;
  uint32_t num_bits = 0;   ///< of the config groups of compressed-tensors: bit b for b bits
  GroupSizes group_sizes;  ///< a whole row is not listed
  std::optional<bool> symmetric, act_order;
  std::vector<int64_t> block;  ///< of FP8: rows and columns that share a scale; or empty
  std::string quantizer;    ///< meta.quantizer: "gptqmodel:2.0.0"; the first when there are several
  std::string packing;      ///< packing_format or backend of AutoRound: "auto_round:auto_gptq"
  std::string pack_dtype;   ///< of GPTQModel: "int64"
  std::string pack_method;  ///< of Quark: "reorder"
  std::string weight_dtype;  ///< of Quark: "uint4"
  /// Why no quantized layer of any kind can be read: the files contradict each other, or the
  /// running model needs a rotation.
  Status refusal;
  bool is_comfy = false;  ///< the metadata describe layers of ComfyUI
  ModelSizes sizes;

  struct Mlx {
    std::optional<int64_t> bits, group_size;
    std::string mode;  ///< "affine", "mxfp4", "nvfp4" or ""
  };
  Mlx mlx;  ///< for all layers
  /// The same for one layer, with the members of `text` that belong to this layer alone. Their
  /// name may have other first parts ("model.", "language_model.") than the layer's.
  Mlx mlx_of(std::string_view layer) const;

  /// A layer that differs. A file may have any number of them, so the struct is small: its texts
  /// stay in the file.
  struct MlxLayer {
    static constexpr int32_t kNone = INT32_MIN;
    uint32_t name = 0, mode = 0;               ///< among JsonStrings of `text`; mode 0: none
    int32_t bits = kNone, group_size = kNone;  ///< the nearest that an int32 holds
    uint8_t skipped = 0;  ///< bytes of the first parts, which `name` leaves out
  };
  std::vector<MlxLayer> mlx_layers;  ///< by name without its first parts
};

/// Reads config.json, quantize_config.json, quant_config.json and hf_quant_config.json. What one of
/// them does not say, the next may, and then the texts in the metadata of safetensors. A malformed
/// file is an error; a missing file is not, and neither is a text that is no JSON. `answers` is
/// what the caller says in the form of config.json, which wins over all of them, or "".
Result<QuantConfig> read_config(Folder& folder, const TensorTable& tensors,
                                std::string_view answers = {});

/// The group size of a row of k elements that has this many scales: a size that the config names,
/// else k / groups. Nothing if no size fits.
std::optional<int64_t> group_size_of(const QuantConfig& config, int64_t k, int64_t groups);

}  // namespace metal_marlin
