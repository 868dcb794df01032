// Collects the members of a config that say how a model is quantized, in one walk through its text.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "checkpoints/config.h"
#include "checkpoints/json.h"

namespace metal_marlin {

/// The members of one object of a config that any writer uses, and nothing else. Texts are as in
/// QuantConfig.
struct ConfigSection {
  bool is_there = false;
  std::optional<std::string> quant_method, version, checkpoint_format, format, mode;
  std::optional<std::string> packing_format, backend, quant_algo, pack_dtype;
  std::optional<std::string> pack_method,
      weight_dtype;       ///< of Quark: export and global_quant_config
  std::string quantizer;  ///< meta.quantizer, or the first when it is a list
  std::optional<int64_t> bits, w_bit, group_size, q_group_size;
  std::optional<bool> sym, desc_act, is_marlin_format;
  std::vector<int64_t> block;          ///< weight_block_size or block_structure, the first two
  std::vector<int64_t> config_groups;  ///< sizes, in the text's order
  uint32_t num_bits = 0;               ///< of config_groups: bit b for weights of b bits
  bool turns_activations = false;      ///< transform_config has a rotation of the running model
  std::vector<QuantConfig::MlxLayer>
      mlx_layers;  ///< of members that are objects, in the text's order; not of the root
};

/// What a config file says, wherever it says it.
struct ConfigSections {
  ConfigSection root;
  /// All objects "quantization_config" and "compression_config", and all objects "quantization", as
  /// one each. Members of one that others do not have are theirs, too.
  ConfigSection quantization_config, quantization;
  std::string conflict;  ///< how two of them contradict each other; "" if they do not
  ModelSizes sizes;
};

/// Adds what `from` says to `into`. Returns "bits: 4 and 8" if both say different things; else "".
std::string merge(ConfigSection& into, ConfigSection&& from);

/// Walks through the text of a config file, whose size and depth have bounds.
Status walk_config(std::string_view text, std::string_view name,
                   const std::function<Status(const JsonEvent&)>& visit);

/// Walks through the text of the file `name` and keeps only the values of ConfigSection, so that
/// the memory stays below a few times the size of the text.
Result<ConfigSections> read_config_sections(std::string_view text, std::string_view name);

/// The text in the form of QuantConfig.
std::string config_word(std::string_view text);

}  // namespace metal_marlin
