#include "checkpoints/config.h"

#include <algorithm>
#include <cerrno>

#include "base/bits.h"
#include "checkpoints/comfy_mark.h"
#include "checkpoints/config_section.h"
#include "checkpoints/file_kind.h"
#include "checkpoints/json.h"
#include "checkpoints/sort_mapped.h"

namespace metal_marlin {
namespace {

/// Takes what the files say. A file's name may imply the method.
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
  config.packing = q.packing_format ? *q.packing_format : q.backend.value_or("");
  config.pack_dtype = q.pack_dtype.value_or("");
  config.pack_method = q.pack_method.value_or("");
  config.weight_dtype = q.weight_dtype.value_or("");
  if (q.block.size() == 2) config.block = q.block;
  if (q.is_marlin_format.value_or(false)) config.format = "marlin";
  const auto own = q.group_size ? q.group_size : q.q_group_size;
  if (own && *own > 0) q.config_groups.insert(q.config_groups.begin(), *own);
  config.group_sizes = GroupSizes(q.config_groups);
  if (q.turns_activations && config.refusal.ok()) {
    config.refusal = Status::error(
        MARLIN_E_UNSUPPORTED,
        "transform_config: the weights want rotated activations, which nothing here rotates");
  }
}

/// The first parts of a layer's name, which writers add and leave out.
constexpr std::string_view kFirstParts[] = {"model.",   "language_model.", "text_model.", "llm.",
                                            "thinker.", "transformer.",    "backbone."};

size_t first_parts_of(std::string_view name) {
  size_t skipped = 0;
  for (bool found = true; found;) {
    found = false;
    for (const std::string_view part : kFirstParts) {
      if (!name.substr(skipped).starts_with(part) || skipped + part.size() > UINT8_MAX) continue;
      skipped += part.size();
      found = true;
    }
  }
  return skipped;
}

void take_mlx(ConfigSection& q, QuantConfig& config) {
  config.mlx = {q.bits, q.group_size, q.mode.value_or("")};
  config.mlx_layers = std::move(q.mlx_layers);
  config.mlx_layers.shrink_to_fit();
  for (QuantConfig::MlxLayer& layer : config.mlx_layers) {
    // A first part with an escape in it stays, and such a name is then found as it is.
    layer.skipped = static_cast<uint8_t>(first_parts_of(config.text.substr(layer.name, 256)));
    layer.name += layer.skipped;
  }
  sort_mapped(std::span(config.mlx_layers),
              [strings = JsonStrings(config.text)](const auto& a, const auto& b) {
                return strings.compare(a.name, b.name) < 0;
              });
}

/// What a text of the metadata says: the section of a config, or the text itself is one.
ConfigSection section_of(ConfigSections& sections, bool is_config) {
  ConfigSection q;
  if (sections.quantization_config.is_there) {
    q = std::move(sections.quantization_config);
  } else if (sections.quantization.is_there) {
    q = std::move(sections.quantization);
  } else if (!is_config) {
    q = std::move(sections.root);
    q.is_there = q.quant_method || q.quant_algo || q.bits;
  }
  q.mlx_layers.clear();  // their names are in this text
  return q;
}

/// The metadata of ComfyUI have the format of each layer. Those whose names and types tell the same
/// are read, and there must be no others.
void take_comfy_marks(std::string_view text, std::string_view name, QuantConfig& config) {
  constexpr uint32_t kMost = 1u << 20;
  const auto mark = read_comfy_mark({text, name, 0, kMost, 16}, 3);
  if (!mark.ok() || mark.value().formats.empty()) return;
  config.is_comfy = true;
  for (const std::string& format : mark.value().formats) {
    const bool is_read =
        format == "nvfp4" || format == "float8_e4m3fn" || format == "int8_tensorwise";
    const int length = static_cast<int>(name.size());
    if (!config.refusal.ok()) return;
    if (!mark.value().unknown.empty()) {
      config.refusal = Status::error(MARLIN_E_UNSUPPORTED,
                                     "%.*s: '%s' is not known, and the values may depend on it",
                                     length, name.data(), mark.value().unknown.c_str());
    } else if (!is_read) {
      config.refusal = Status::error(
          MARLIN_E_UNSUPPORTED,
          "%.*s: expected the formats nvfp4, float8_e4m3fn and int8_tensorwise, found '%s'", length,
          name.data(), format.c_str());
    }
  }
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
  MARLIN_RETURN_IF_ERROR(expect_json(name, text));
  MARLIN_ASSIGN(ConfigSections sections, read_config_sections(text, name));
  return std::optional(std::move(sections));
}

/// What the caller of marlin_checkpoint_open says.
struct Answers {
  ConfigSection section;
  ModelSizes sizes;

  static Result<Answers> read(std::string_view text) {
    Answers answers;
    if (text.empty()) return answers;
    constexpr const char* kName = "desc->config";
    if (const size_t first = text.find_first_not_of(" \t\r\n");
        first == std::string_view::npos || text[first] != '{')
      return Status::error(MARLIN_E_FORMAT, "%s: expected an object of JSON", kName);
    MARLIN_RETURN_IF_ERROR(expect_json(kName, text));
    MARLIN_ASSIGN(ConfigSections said, read_config_sections(text, kName));
    answers.section = std::move(said.quantization_config);
    const std::string conflict = merge(answers.section, std::move(said.quantization));
    if (!conflict.empty() || !said.conflict.empty())
      return Status::error(MARLIN_E_FORMAT, "%s: its sections differ in %.150s", kName,
                           (conflict.empty() ? said.conflict : conflict).c_str());
    answers.section.mlx_layers.clear();  // their names are in this text
    answers.sizes = std::move(said.sizes);
    return answers;
  }

  void lay_over(ConfigSection& q) const {
    ConfigSection both = section;
    static_cast<void>(merge(both, std::move(q)));
    if (section.num_bits != 0) both.num_bits = section.num_bits;
    q = std::move(both);
  }
  void lay_over(QuantConfig& config) const {
    if (section.bits) config.mlx.bits = section.bits;
    if (section.group_size) config.mlx.group_size = section.group_size;
    if (section.mode) config.mlx.mode = *section.mode;
    if (sizes.hidden != 0) config.sizes.hidden = sizes.hidden;
    if (sizes.intermediate != 0) config.sizes.intermediate = sizes.intermediate;
    if (sizes.experts != 0) config.sizes.experts = sizes.experts;
    if (!sizes.model_type.empty()) config.sizes.model_type = sizes.model_type;
  }
};

/// Gives `take` what the texts in the metadata of safetensors say, one after another.
template <class Take>
void read_metadata(const TensorTable& tensors, QuantConfig& config, const Take& take) {
  for (const TensorTable::Text& text : tensors.texts()) {
    const std::string name = std::string("metadata of ") + file_label(tensors.file_name(text.file));
    take_comfy_marks(text.text, name, config);
    auto sections = read_config_sections(text.text, name);
    if (!sections.ok()) continue;
    ConfigSection q = section_of(sections.value(), text.is_config);
    if (!q.is_there) continue;
    if (!config.mlx.bits && !config.mlx.group_size && !q.quant_method)
      config.mlx = {q.bits, q.group_size, q.mode.value_or("")};
    take(name, sections.value().conflict, std::move(q));
  }
}

}  // namespace

Result<QuantConfig> read_config(Folder& folder, const TensorTable& tensors, std::string_view said) {
  MARLIN_ASSIGN(const Answers answers, Answers::read(said));
  QuantConfig config;
  ConfigSection all;
  std::string first;
  const char* default_method = "";
  const auto refuse = [&](const std::string& said, const std::string& file) {
    if (said.empty() || !config.refusal.ok()) return;
    config.refusal = first.empty()
                         ? Status::error(MARLIN_E_FORMAT, "%s: %.150s", file.c_str(), said.c_str())
                         : Status::error(MARLIN_E_FORMAT, "%s and %s differ in %.150s",
                                         first.c_str(), file.c_str(), said.c_str());
  };
  const auto take = [&](const std::string& file, const std::string& conflict, ConfigSection&& q) {
    refuse(conflict, file);
    answers.lay_over(q);
    refuse(merge(all, std::move(q)), file);
    if (first.empty()) first = file;
  };
  static constexpr struct {
    const char *file, *method;
  } kFiles[] = {{"config.json", ""},
                {"quantize_config.json", "gptq"},
                {"quant_config.json", "awq"},
                {"hf_quant_config.json", "modelopt"}};
  for (const auto& one : kFiles) {
    std::string_view text;
    MARLIN_ASSIGN(std::optional<ConfigSections> file, read_file(folder, one.file, text));
    if (!file) continue;
    refuse(file->conflict, one.file);
    ConfigSection& q = file->quantization_config;
    if (one.method[0] == '\0') {  // config.json, where "quantization" is MLX's
      config.text = text;
      config.sizes = std::move(file->sizes);
      ConfigSection mlx = std::move(file->quantization);
      if (mlx.is_there) answers.lay_over(mlx);
      if (q.is_there && !q.quant_method) {
        ConfigSection same = q;
        answers.lay_over(same);
        refuse(merge(mlx, std::move(same)), one.file);
      }
      if (mlx.is_there) take_mlx(mlx, config);
      if (!q.is_there) continue;
    } else if (!q.is_there) {
      q = file->quantization.is_there ? std::move(file->quantization) : std::move(file->root);
    }
    q.mlx_layers.clear();  // their names are in this file's text
    take(one.file, "", std::move(q));
    if (default_method[0] == '\0') default_method = one.method;
  }
  read_metadata(tensors, config, take);
  answers.lay_over(all);
  answers.lay_over(config);
  if (!first.empty() || all.is_there) take_quantization(all, default_method, config);
  return config;
}

QuantConfig::Mlx QuantConfig::mlx_of(std::string_view layer) const {
  const JsonStrings strings(text);
  const size_t skipped = first_parts_of(layer);
  const std::string_view name = layer.substr(skipped);
  auto own = std::lower_bound(
      mlx_layers.begin(), mlx_layers.end(), name,
      [&](const MlxLayer& a, std::string_view text) { return strings.compare(a.name, text) < 0; });
  const MlxLayer* best = nullptr;
  for (; own != mlx_layers.end() && strings.compare(own->name, name) == 0; ++own) {
    if (best == nullptr || own->skipped == skipped) best = &*own;
  }
  if (best == nullptr) return mlx;
  // MLX does not take the mode of the others; of sizes that are not named, the tensors tell more.
  Mlx one{mlx.bits, mlx.group_size,
          best->mode == 0 ? "" : config_word(strings.get(best->mode, 64))};
  if (best->bits != MlxLayer::kNone) one.bits = best->bits;
  if (best->group_size != MlxLayer::kNone) one.group_size = best->group_size;
  return one;
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
