#include "checkpoints/config.h"

#include <algorithm>
#include <cerrno>
#include <cmath>

#include "base/bits.h"
#include "checkpoints/json.h"

namespace metal_marlin {
namespace {

constexpr size_t kMaxConfig = 16u << 20;

std::string lower(std::string text) {
  for (char& c : text) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return text;
}
/// The first of these members that is a text, in lower case; or "".
std::string text_of(const JsonValue& object, std::initializer_list<std::string_view> keys) {
  for (const std::string_view key : keys) {
    const JsonValue* value = object.find(key);
    if (value != nullptr && value->kind == JsonEvent::Kind::string) return lower(value->text);
  }
  return {};
}
std::optional<int64_t> integer_of(const JsonValue& object, std::initializer_list<std::string_view> keys) {
  for (const std::string_view key : keys) {
    const JsonValue* value = object.find(key);
    if (value == nullptr) continue;
    const bool number = value->kind == JsonEvent::Kind::integer || value->kind == JsonEvent::Kind::negative;
    if (number && std::fabs(value->number) < 1e15) return static_cast<int64_t>(value->number);
  }
  return std::nullopt;
}
std::optional<bool> bool_of(const JsonValue& object, std::string_view key) {
  const JsonValue* value = object.find(key);
  if (value == nullptr || value->kind != JsonEvent::Kind::boolean) return std::nullopt;
  return value->boolean;
}
void add_group_size(const JsonValue& object, QuantConfig& config) {
  const auto size = integer_of(object, {"group_size", "q_group_size"});
  if (size && *size > 0 && std::find(config.group_sizes.begin(), config.group_sizes.end(), *size) == config.group_sizes.end()) {
    config.group_sizes.push_back(*size);
  }
}

/// meta.quantizer: a text, or a list of them whose first is the writer.
std::string quantizer_of(const JsonValue& meta) {
  const JsonValue* quantizer = meta.find("quantizer");
  if (quantizer != nullptr && !quantizer->items.empty()) quantizer = &quantizer->items.front();
  return quantizer != nullptr && quantizer->kind == JsonEvent::Kind::string ? lower(quantizer->text) : std::string();
}

/// quantization_config of config.json, and the whole of the other files, which leave the method to their name.
void read_quantization(const JsonValue& q, const char* default_method, QuantConfig& config) {
  config.method = text_of(q, {"quant_method"});
  if (config.method.empty()) config.method = default_method;
  // AWQ calls its variant "version"; in others that is the version of the writer.
  if (config.method == "awq") config.format = text_of(q, {"version"});
  if (config.format.empty()) config.format = text_of(q, {"checkpoint_format", "format"});
  config.bits = integer_of(q, {"bits", "w_bit"});
  config.symmetric = bool_of(q, "sym");
  config.act_order = bool_of(q, "desc_act");
  if (const JsonValue* meta = q.find("meta")) config.quantizer = quantizer_of(*meta);
  if (bool_of(q, "is_marlin_format").value_or(false)) config.format = "marlin";
  add_group_size(q, config);
  const JsonValue* groups = q.find("config_groups");
  if (groups == nullptr) return;
  for (const auto& [name, group] : groups->members) {
    if (const JsonValue* weights = group.find("weights")) add_group_size(*weights, config);
  }
}

QuantConfig::Mlx read_mlx_layer(const JsonValue& q) {
  return {integer_of(q, {"bits"}), integer_of(q, {"group_size"}), text_of(q, {"mode"})};
}

void read_mlx(const JsonValue& q, QuantConfig& config) {
  config.method = "mlx";
  config.mlx = read_mlx_layer(q);
  for (const auto& [name, value] : q.members) {
    if (value.is_object()) config.mlx_layers[name] = read_mlx_layer(value);
  }
}

/// False when there is no such file. `text` is what it holds.
Result<bool> read_file(Folder& folder, const char* name, JsonValue& out, std::string_view& text) {
  const auto bytes = folder.open(name);
  if (!bytes.ok()) {
    if (bytes.status().code() == MARLIN_E_FILE && bytes.status().native_code() == ENOENT) return false;
    return bytes.status();
  }
  text = {reinterpret_cast<const char*>(bytes.value().data()), bytes.value().size()};
  MARLIN_ASSIGN(out, parse_json({text, name, 0, kMaxConfig, 64}));
  return true;
}

}  // namespace

Result<QuantConfig> read_config(Folder& folder) {
  QuantConfig config;
  JsonValue file;
  MARLIN_ASSIGN(const bool has_config, read_file(folder, "config.json", file, config.text));
  if (has_config) {
    const JsonValue* mlx = file.find("quantization");
    const JsonValue* q = file.find("quantization_config");
    const JsonValue* inner = file.find("text_config");  // of models that also see or hear
    if (q == nullptr && inner != nullptr) q = inner->find("quantization_config");
    if (mlx == nullptr && inner != nullptr) mlx = inner->find("quantization");
    if (mlx != nullptr && mlx->is_object()) {
      read_mlx(*mlx, config);
      return config;
    }
    if (q != nullptr && q->is_object()) {
      read_quantization(*q, "", config);
      return config;
    }
  }
  static constexpr struct {
    const char *file, *method;
  } kOthers[] = {{"quantize_config.json", "gptq"}, {"quant_config.json", "awq"}, {"hf_quant_config.json", "modelopt"}};
  for (const auto& other : kOthers) {
    std::string_view text;
    MARLIN_ASSIGN(const bool there, read_file(folder, other.file, file, text));
    if (!there) continue;
    const JsonValue* q = file.find("quantization");
    read_quantization(q != nullptr ? *q : file, other.method, config);
    return config;
  }
  return config;
}

std::optional<int64_t> group_size_of(const QuantConfig& config, int64_t k, int64_t groups) {
  if (k < 1 || groups < 1) return std::nullopt;
  if (groups == 1) return k;
  for (const int64_t size : config.group_sizes) {
    if (ceil_div(k, size) == groups) return size;
  }
  if (k % groups != 0) return std::nullopt;
  return k / groups;
}

}  // namespace metal_marlin
