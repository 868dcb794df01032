#include "checkpoints/config.h"

#include <algorithm>
#include <cerrno>

#include "base/bits.h"
#include "checkpoints/config_section.h"
#include "checkpoints/json.h"
#include "checkpoints/sort_mapped.h"

namespace metal_marlin {
namespace {

/// Takes quantization_config of config.json, or the whole of another file, whose name implies the
/// method.
void take_quantization(ConfigSection& q, const char* default_method, QuantConfig& config) {
  config.method = q.quant_method.value_or("");
  if (config.method.empty()) config.method = default_method;
  // AWQ calls its variant "version"; in other configs, "version" is the version of the writer.
  if (config.method == "awq") config.format = q.version.value_or("");
  if (config.format.empty())
    config.format = q.checkpoint_format ? *q.checkpoint_format : q.format.value_or("");
  if (config.method == "compressed-tensors") config.version = q.version.value_or("");
  config.bits = q.bits ? q.bits : q.w_bit;
  config.num_bits = q.num_bits;
  config.symmetric = q.sym;
  config.act_order = q.desc_act;
  config.quantizer = q.quantizer;
  if (q.block.size() == 2) config.block = q.block;
  if (q.is_marlin_format.value_or(false)) config.format = "marlin";
  const auto own = q.group_size ? q.group_size : q.q_group_size;
  if (own && *own > 0) q.config_groups.insert(q.config_groups.begin(), *own);
  config.group_sizes = GroupSizes(q.config_groups);
}

void take_mlx(ConfigSection& q, QuantConfig& config) {
  config.method = "mlx";
  config.mlx = {q.bits, q.group_size, q.mode.value_or("")};
  config.mlx_layers = std::move(q.mlx_layers);
  config.mlx_layers.shrink_to_fit();
  sort_mapped(std::span(config.mlx_layers),
              [strings = JsonStrings(config.text)](const auto& a, const auto& b) {
                return strings.compare(a.name, b.name) < 0;
              });
}

/// Returns nothing if there is no such file. `text` receives its content.
Result<std::optional<ConfigSections>> read_file(Folder& folder, const char* name,
                                                std::string_view& text) {
  const auto bytes = folder.open(name);
  if (!bytes.ok()) {
    if (bytes.status().code() == MARLIN_E_FILE && bytes.status().native_code() == ENOENT)
      return std::optional<ConfigSections>();
    return bytes.status();
  }
  text = {reinterpret_cast<const char*>(bytes.value().data()), bytes.value().size()};
  MARLIN_ASSIGN(ConfigSections sections, read_config_sections(text, name));
  return std::optional(std::move(sections));
}

}  // namespace

Result<QuantConfig> read_config(Folder& folder) {
  QuantConfig config;
  MARLIN_ASSIGN(std::optional<ConfigSections> file, read_file(folder, "config.json", config.text));
  if (file) {
    ConfigSection& mlx =
        file->quantization.is_there ? file->quantization : file->inner_quantization;
    if (mlx.is_object) {
      take_mlx(mlx, config);
      return config;
    }
    ConfigSection& q = file->quantization_config.is_there ? file->quantization_config
                                                          : file->inner_quantization_config;
    if (q.is_object) {
      take_quantization(q, "", config);
      return config;
    }
  }
  static constexpr struct {
    const char *file, *method;
  } kOthers[] = {{"quantize_config.json", "gptq"},
                 {"quant_config.json", "awq"},
                 {"hf_quant_config.json", "modelopt"}};
  for (const auto& other : kOthers) {
    std::string_view text;
    MARLIN_ASSIGN(file, read_file(folder, other.file, text));
    if (!file) continue;
    take_quantization(file->quantization.is_there ? file->quantization : file->root, other.method,
                      config);
    return config;
  }
  return config;
}

QuantConfig::Mlx QuantConfig::mlx_of(std::string_view layer) const {
  const JsonStrings strings(text);
  const auto own = std::lower_bound(
      mlx_layers.begin(), mlx_layers.end(), layer,
      [&](const MlxLayer& a, std::string_view name) { return strings.compare(a.name, name) < 0; });
  Mlx all = mlx;
  if (own == mlx_layers.end() || strings.compare(own->name, layer) != 0) return all;
  if (own->bits != MlxLayer::kNone) all.bits = own->bits;
  if (own->group_size != MlxLayer::kNone) all.group_size = own->group_size;
  const std::string mode = own->mode == 0 ? "" : config_word(strings.get(own->mode, 64));
  if (!mode.empty()) all.mode = mode;
  return all;
}

std::optional<int64_t> group_size_of(const QuantConfig& config, int64_t k, int64_t groups) {
  if (k < 1 || groups < 1) return std::nullopt;
  if (groups == 1) return k;
  // ceil(k / size) == groups, that is (groups - 1) size < k <= groups size
  if (const auto size =
          config.group_sizes.first_between(ceil_div(k, groups), (k - 1) / (groups - 1)))
    return size;
  if (k % groups != 0) return std::nullopt;
  return k / groups;
}

}  // namespace metal_marlin
