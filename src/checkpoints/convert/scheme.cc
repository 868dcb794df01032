#include "checkpoints/convert/scheme.h"

#include <algorithm>
#include <map>
#include <string_view>

#include "formats/format_table.h"

namespace metal_marlin {
namespace {

void describe_compressed_tensors(const Described& layers, JsonWriter& config) {
  const WeightMeta& meta = layers.meta;
  const bool int4 = meta.format == MARLIN_FORMAT_INT4, channel = int4 && meta.groups == 1;
  const bool nvfp4 = meta.format == MARLIN_FORMAT_NVFP4;
  const char* const fp4_format = nvfp4 ? "nvfp4-pack-quantized" : "mxfp4-pack-quantized";
  const char* const format = int4 ? "pack-quantized" : fp4_format;
  const char* const grouped = nvfp4 ? "tensor_group" : "group";
  config.key("quant_method").string("compressed-tensors");
  config.key("format").string(format);
  config.key("quantization_status").string("compressed");
  config.key("config_groups").begin('{').key("group_0").begin('{');
  config.key("targets").begin('[').string("Linear").end(']');
  config.key("weights").begin('{');
  config.key("num_bits").number("4");
  config.key("type").string(int4 ? "int" : "float");
  config.key("symmetric").boolean(meta.zero_kind == ZeroKind::none);
  config.key("strategy").string(channel ? "channel" : grouped);
  if (!channel) config.key("group_size").number(std::to_string(meta.group_size));
  config.key("dynamic").boolean(false);
  config.end('}');
  config.key("input_activations").null();
  config.key("output_activations").null();
  config.key("format").string(format);
  config.end('}').end('}');
  config.key("ignore").begin('[');
  for (const std::string& name : layers.ignore) config.string(name);
  config.end(']');
}

/// A regular expression that matches only this name.
std::string exactly(const std::string& name) {
  std::string pattern = "-:^";
  for (const char c : name) {
    if (std::string_view("\\^$.|?*+()[]{}").find(c) != std::string_view::npos) pattern += '\\';
    pattern += c;
  }
  return pattern + "$";
}

void describe_gptq(const Described& layers, JsonWriter& config) {
  const WeightMeta& meta = layers.meta;
  config.key("quant_method").string("gptq");
  config.key("bits").number("4");
  config.key("group_size").number(std::to_string(meta.groups == 1 ? -1 : meta.group_size));
  config.key("desc_act").boolean(false);
  config.key("sym").boolean(meta.zero_kind == ZeroKind::none);
  config.key("lm_head").boolean(false);
  config.key("checkpoint_format").string("gptq_v2");
  if (layers.ignore.empty()) return;
  config.key("dynamic").begin('{');  // GPTQModel's way to say which modules are floats
  for (const std::string& name : layers.ignore) config.key(exactly(name)).begin('{').end('}');
  config.end('}');
}

void describe_marlin_24(const Described& layers, JsonWriter& config) {
  const WeightMeta& meta = layers.meta;
  config.key("quant_method").string("compressed-tensors");
  config.key("format").string("marlin-24");
  config.key("quantization_status").string("compressed");
  config.key("config_groups").begin('{').key("group_0").begin('{');
  config.key("targets").begin('[').string("Linear").end(']');
  config.key("weights").begin('{');
  config.key("num_bits").number("4");
  config.key("type").string("int");
  config.key("symmetric").boolean(true);
  config.key("strategy").string(meta.groups == 1 ? "channel" : "group");
  if (meta.groups > 1) config.key("group_size").number(std::to_string(meta.group_size));
  config.end('}').end('}').end('}');
  config.key("ignore").begin('[');
  for (const std::string& name : layers.ignore) config.string(name);
  config.end(']');
}

/// What most layers have stands at the top, and layers that differ have members of their own.
void describe_mlx(const Described& layers, JsonWriter& config) {
  const auto members = [&](const WeightMeta& meta) {
    config.key("group_size").number(std::to_string(meta.group_size));
    config.key("bits").number(std::to_string(format_row(meta.format)->code_bits));
    config.key("mode").string("affine");
  };
  const auto kind = [](const WeightMeta& meta) { return std::pair(meta.format, meta.group_size); };
  std::map<std::pair<marlin_format, int64_t>, size_t> counts;
  for (const auto& [name, meta] : layers.layers) ++counts[kind(meta)];
  const auto& most = std::max_element(layers.layers.begin(), layers.layers.end(),
                                      [&](const auto& a, const auto& b) {
                                        return counts[kind(a.second)] < counts[kind(b.second)];
                                      })
                         ->second;
  members(most);
  for (const auto& [name, meta] : layers.layers) {
    if (kind(meta) == kind(most)) continue;
    config.key(name).begin('{');
    members(meta);
    config.end('}');
  }
}

// Suffixes: values, scales, zeros, group index, tensor scale, 2:4 metadata, shape.
constexpr Scheme kSchemes[] = {
    {.number = MARLIN_SCHEME_COMPRESSED_TENSORS,
     .name = "compressed-tensors",
     .divides = true,
     .layout = LayoutId::compressed_tensors,
     .suffixes = {".weight_packed", ".weight_scale", ".weight_zero_point", nullptr,
                  ".weight_global_scale", nullptr, ".weight_shape"},
     .describe = describe_compressed_tensors},
    {.number = MARLIN_SCHEME_GPTQ,
     .name = "GPTQ",
     .layout = LayoutId::gptq_v2,
     .suffixes = {".qweight", ".scales", ".qzeros", ".g_idx", nullptr, nullptr, nullptr},
     .describe = describe_gptq,
     .own_config = "quantize_config.json"},
    {.number = MARLIN_SCHEME_MARLIN_24,
     .name = "marlin-24",
     .sparse = true,
     .default_group = 128,
     .layout = LayoutId::marlin_24,
     .suffixes = {".weight_packed", ".scale_packed", nullptr, nullptr, nullptr, ".meta", nullptr},
     .describe = describe_marlin_24},
    {.number = MARLIN_SCHEME_GGUF,
     .name = "GGUF",
     .gguf = true,
     .layout = LayoutId::gguf,
     .suffixes = {nullptr, nullptr, nullptr, nullptr, ".scale"}},
    {.number = MARLIN_SCHEME_MLX,
     .name = "MLX",
     .additive = true,
     .default_group = 64,
     .layout = LayoutId::mlx,
     .suffixes = {".weight", ".scales", ".biases", nullptr, nullptr, nullptr, nullptr},
     .config_key = "quantization",
     .describe = describe_mlx},
};

}  // namespace

const Scheme* scheme_row(marlin_scheme number) {
  for (const Scheme& scheme : kSchemes) {
    if (scheme.number == number) return &scheme;
  }
  return nullptr;
}

Result<std::vector<NamedTensor>> scheme_tensors(const Scheme& scheme, const SchemeTarget& target) {
  MARLIN_ASSIGN(std::vector<EncodedTensor> tensors,
                scheme.encoder().tensors(target.meta, target.experts));
  std::vector<NamedTensor> named;
  for (EncodedTensor& tensor : tensors) {
    const char* suffix = scheme.suffixes[static_cast<size_t>(tensor.role)];
    if (scheme.gguf && suffix != nullptr && !target.tensor.ends_with(".weight")) {
      return Status::error(
          MARLIN_E_UNSUPPORTED,
          "GGUF: the tensor scale of an NVFP4 tensor is found by its name in .weight");
    }
    named.push_back({suffix == nullptr ? target.tensor : target.base + suffix, std::move(tensor)});
  }
  return named;
}

}  // namespace metal_marlin
