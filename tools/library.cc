#include "library.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <optional>
#include <sstream>
#include <string_view>

#include "command.h"
#include "names.h"
#include "trace.h"
#include "words.h"

namespace metal_marlin::tools {

void check(marlin_status status, const marlin_error& error, const std::string& doing) {
  if (status == MARLIN_OK) return;
  throw Failure(fmt::format("{}: {} ({})", doing, error.message, marlin_status_name(status)));
}

std::vector<marlin_device_info> devices() {
  std::vector<marlin_device_info> all;
  for (uint32_t i = 0;; ++i) {
    auto info = make<marlin_device_info>();
    auto error = make<marlin_error>();
    const marlin_status status = marlin_device_get(i, &info, &error);
    if (status == MARLIN_E_NOT_FOUND) return all;
    check(status, error, fmt::format("cannot describe device {}", i));
    all.push_back(info);
  }
}

Context make_context(const ContextOptions& options) {
  auto desc = make<marlin_context_desc>();
  desc.backend = options.backend;
  desc.threads = options.threads;
  desc.device_index = options.device_index;
  if (options.messages != nullptr) {
    desc.log = [](void* user, marlin_log_level, const char* message) {
      static_cast<std::vector<std::string>*>(user)->emplace_back(message);
    };
    desc.user = options.messages;
  }
  if (options.trace != nullptr) options.trace->attach(desc);
  auto error = make<marlin_error>();
  marlin_context* context = nullptr;
  check(marlin_context_create(&desc, &context, &error), error, "cannot open the device");
  return Context(context);
}

marlin_device_info device_of(marlin_backend backend) {
  // AUTO takes the first usable backend of CUDA, Metal, CPU.
  const marlin_backend order[] = {MARLIN_BACKEND_CUDA, MARLIN_BACKEND_METAL, MARLIN_BACKEND_CPU};
  const auto all = devices();
  for (marlin_backend candidate : order) {
    if (backend != MARLIN_BACKEND_AUTO && candidate != backend) continue;
    for (const auto& info : all) {
      if (info.backend == candidate && info.why_not[0] == '\0') return info;
    }
  }
  throw Failure("no usable device; 'metal-marlin doctor' says why");
}

namespace {

Reading chosen_reading;

}  // namespace

std::optional<Reading> parse_reading(std::string_view name) {
  if (name.starts_with('{')) return Reading{.config = std::string(name)};
  static const std::pair<std::string_view, Reading> kReadings[] = {
      {"gptq-v1", {MARLIN_LAYOUT_GPTQ_V1, 0, {}}},
      {"gptq-v2", {MARLIN_LAYOUT_GPTQ_V2, 0, {}}},
      {"awq", {MARLIN_LAYOUT_AWQ, 0, {}}},
      {"awq-gemv", {MARLIN_LAYOUT_AWQ_GEMV, 0, {}}},
      {"awq-gemv-fast", {MARLIN_LAYOUT_AWQ_GEMV_FAST, 0, {}}},
      {"outputs-first", {MARLIN_LAYOUT_AUTO, MARLIN_OPEN_OUTPUTS_FIRST, {}}},
      {"inputs-first", {MARLIN_LAYOUT_AUTO, MARLIN_OPEN_INPUTS_FIRST, {}}},
  };
  for (const auto& [known, reading] : kReadings)
    if (known == name) return reading;
  return std::nullopt;
}

void set_reading(const Reading& reading) { chosen_reading = reading; }

Checkpoint open_checkpoint(const std::string& path) {
  auto error = make<marlin_error>();
  auto desc = make<marlin_open_desc>();
  desc.layout = chosen_reading.layout;
  desc.flags = chosen_reading.flags;
  if (!chosen_reading.config.empty()) desc.config = chosen_reading.config.c_str();
  marlin_checkpoint* checkpoint = nullptr;
  const marlin_status status = marlin_checkpoint_open(path.c_str(), &desc, &checkpoint, &error);
  // What is wrong with the file as a whole begins with its path already.
  if (status != MARLIN_OK && std::string_view(error.message).starts_with(path + ": "))
    throw Failure(fmt::format("{} ({})", error.message, marlin_status_name(status)));
  check(status, error, fmt::format("cannot open {}", path));
  return Checkpoint(checkpoint);
}

void for_each_layer(const marlin_checkpoint* checkpoint,
                    const std::function<void(const marlin_layer_info&)>& visit) {
  for (uint64_t i = 0;; ++i) {
    auto info = make<marlin_layer_info>();
    auto error = make<marlin_error>();
    const marlin_status status = marlin_checkpoint_layer(checkpoint, i, &info, &error);
    if (status == MARLIN_E_NOT_FOUND) return;
    check(status, error, fmt::format("cannot describe layer {}", i));
    visit(info);
  }
}

std::vector<marlin_layer_info> layers_of(const marlin_checkpoint* checkpoint) {
  std::vector<marlin_layer_info> all;
  for_each_layer(checkpoint, [&](const marlin_layer_info& layer) { all.push_back(layer); });
  return all;
}

marlin_layer_info find_layer(const marlin_checkpoint* checkpoint, const std::string& name) {
  std::optional<marlin_layer_info> found;
  std::vector<std::string> names;
  for_each_layer(checkpoint, [&](const marlin_layer_info& layer) {
    if (!found && name == layer.name) found = layer;
    if (!found) names.emplace_back(layer.name);
  });
  if (found) return *found;
  const std::string meant = most_like(name, names);
  const std::string hint = names.empty() ? "" : ", the first is " + names.front();
  const std::string has = "he file has " + counted(names.size(), "layer");
  throw Failure(fmt::format(
      "there is no layer '{}'; {}", name,
      meant.empty() ? "t" + has + hint : fmt::format("did you mean '{}'? T{}", meant, has)));
}

std::string tensor_type(const marlin_checkpoint* checkpoint, const char* name) {
  auto error = make<marlin_error>();
  marlin_matrix matrix{};
  const marlin_status status = marlin_checkpoint_tensor(checkpoint, name, &matrix, &error);
  if (status == MARLIN_OK) {
    std::string type = dtype_name(matrix.dtype);
    std::transform(type.begin(), type.end(), type.begin(),
                   [](unsigned char c) { return std::toupper(c); });
    return type;
  }
  // Types without a marlin_dtype are no matrices of the interface. Its message names them.
  const std::string_view message = error.message;
  constexpr std::string_view kBefore = " has type ", kBehind = ", which marlin_dtype";
  const size_t at = message.rfind(kBefore), end = message.rfind(kBehind);
  if (status != MARLIN_E_UNSUPPORTED || at == message.npos || end == message.npos || end < at)
    return "";
  return std::string(message.substr(at + kBefore.size(), end - at - kBefore.size()));
}

std::string quant_method(const marlin_checkpoint* checkpoint) {
  auto value = make<marlin_value>();
  const marlin_status status =
      marlin_checkpoint_value(checkpoint, "quantization_config.quant_method", &value, nullptr);
  if (status != MARLIN_OK || value.kind != MARLIN_VALUE_STRING) return "";
  return {static_cast<const char*>(value.data), value.bytes};
}

namespace {

marlin_status load_status(marlin_context* context, const marlin_checkpoint* checkpoint,
                          const marlin_layer_info& layer, uint32_t expert, const Quantize& quantize,
                          marlin_weights** out, marlin_error* error) {
  marlin_shard shard{};
  shard.first[2] = expert;
  shard.count[2] = 1;
  auto desc = make<marlin_load_desc>();
  desc.layers = &layer.name;
  desc.shards = layer.experts > 1 ? &shard : nullptr;
  desc.layer_count = 1;
  if (layer.format == MARLIN_FORMAT_NONE) {
    desc.format = quantize.format;
    desc.group_size = quantize.group;
  }
  return marlin_weights_load(context, checkpoint, &desc, out, error);
}

}  // namespace

Weights try_load(marlin_context* context, const marlin_checkpoint* checkpoint,
                 const marlin_layer_info& layer, uint32_t expert, const Quantize& quantize,
                 Refusal* refusal) {
  auto error = make<marlin_error>();
  marlin_weights* weights = nullptr;
  const marlin_status status =
      load_status(context, checkpoint, layer, expert, quantize, &weights, &error);
  if (status != MARLIN_OK) *refusal = {status, error.message};
  return Weights(weights);
}

Weights load(marlin_context* context, const marlin_checkpoint* checkpoint,
             const marlin_layer_info& layer, uint32_t expert, const Quantize& quantize) {
  auto error = make<marlin_error>();
  marlin_weights* weights = nullptr;
  check(load_status(context, checkpoint, layer, expert, quantize, &weights, &error), error,
        fmt::format("cannot load '{}'", layer.name));
  return Weights(weights);
}

std::string why_not(marlin_context* context, const marlin_checkpoint* checkpoint,
                    const marlin_layer_info& layer) {
  if (layer.status == MARLIN_OK) return {};
  // The list of layers has only a status. Loading the layer gives the message; it is refused before
  // any work.
  Refusal refusal;
  const Weights weights = try_load(context, checkpoint, layer, 0, Quantize{}, &refusal);
  return refusal.why.empty() ? marlin_status_name(layer.status) : refusal.why;
}

marlin_layer_info info_of(const marlin_weights* weights) {
  auto info = make<marlin_layer_info>();
  auto error = make<marlin_error>();
  check(marlin_weights_info(weights, &info, &error), error, "cannot describe the weights");
  return info;
}

void unpack_rows(const marlin_weights* weights, int64_t first, int64_t count, int64_t k,
                 float* out) {
  marlin_matrix matrix{};
  matrix.data = out;
  matrix.rows = count;
  matrix.cols = k;
  matrix.dtype = MARLIN_F32;
  auto error = make<marlin_error>();
  check(marlin_weights_unpack(nullptr, weights, nullptr, first, &matrix, &error), error,
        "cannot unpack");
}

std::string why_not_served(const marlin_gemm_desc& desc) {
  auto error = make<marlin_error>();
  const marlin_status status = marlin_explain(&desc, nullptr, 0, nullptr, &error);
  return status == MARLIN_E_UNSUPPORTED ? error.message : "";
}

std::string explain(const marlin_gemm_desc& desc) {
  auto error = make<marlin_error>();
  size_t needed = 0;
  check(marlin_explain(&desc, nullptr, 0, &needed, &error), error, "cannot explain");
  std::string text(needed, '\0');
  check(marlin_explain(&desc, text.data(), text.size(), &needed, &error), error, "cannot explain");
  text.resize(std::strlen(text.c_str()));
  return text;
}

std::vector<std::pair<std::string, std::string>> explained(const std::string& text) {
  std::vector<std::pair<std::string, std::string>> pairs;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    if (const size_t colon = line.find(": "); colon != std::string::npos)
      pairs.emplace_back(line.substr(0, colon), line.substr(colon + 2));
  return pairs;
}

std::string explained(const std::string& text, const std::string& key) {
  for (auto& [name, value] : explained(text))
    if (name == key) return value;
  return {};
}

}  // namespace metal_marlin::tools
