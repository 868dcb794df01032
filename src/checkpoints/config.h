// What the files beside the tensors say about how they were quantized.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "checkpoints/folder.h"
#include "checkpoints/group_sizes.h"

namespace metal_marlin {

/// Everything is optional: tensors' names and types decide where nothing is said. Texts are in
/// lower case and cut after 64 bytes, which is more than any that has a meaning.
struct QuantConfig {
  std::string_view
      text;  ///< of config.json as it is; "" when there is none; lives as long as the folder
  std::string method;  ///< quant_method: "gptq", "awq", "compressed-tensors", "mxfp4", "modelopt",
                       ///< "quark", "mlx"
  std::string
      format;  ///< checkpoint_format, version or format: "gptq_v2", "gemm", "pack-quantized"
  std::optional<int64_t> bits;
  GroupSizes group_sizes;  ///< a whole row is not listed
  std::optional<bool> symmetric, act_order;
  std::string quantizer;  ///< meta.quantizer: "gptqmodel:2.0.0"; the first when there are several

  struct Mlx {
    std::optional<int64_t> bits, group_size;
    std::string mode;  ///< "affine", "mxfp4", "nvfp4" or ""
  };
  Mlx mlx;  ///< for all layers
  /// The same with what `text` says of this layer alone.
  Mlx mlx_of(std::string_view layer) const;

  /// A layer that differs. There may be as many as a writer likes, so it is small: texts stay where
  /// they are.
  struct MlxLayer {
    static constexpr int32_t kNone = INT32_MIN;
    uint32_t name = 0, mode = 0;               ///< among JsonStrings of `text`; mode 0: none
    int32_t bits = kNone, group_size = kNone;  ///< the nearest that an int32 holds
  };
  std::vector<MlxLayer> mlx_layers;  ///< by name
};

/// Reads config.json and, when it says nothing about quantization, quantize_config.json,
/// quant_config.json and hf_quant_config.json. Files that are not there are no error; malformed
/// ones are.
Result<QuantConfig> read_config(Folder& folder);

/// The size of the groups of a row of k elements that has this many scales: one that the config
/// names, else k / groups. Nothing when none fits.
std::optional<int64_t> group_size_of(const QuantConfig& config, int64_t k, int64_t groups);

}  // namespace metal_marlin
