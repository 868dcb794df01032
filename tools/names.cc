#include "names.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "formats/format_rows.h"

namespace metal_marlin::tools {
namespace {

using Names = std::span<const std::string_view>;

// By the value of the constant, which never changes.
constexpr std::string_view kComputes[] = {"default", "int8", "fp8", "w16"};
constexpr std::string_view kLayouts[] = {"auto",    "rows",   "k8n",      "gptq-v1",
                                         "gptq-v2", "awq",    "awq-gemv", "awq-gemv-fast",
                                         "gguf",    "marlin", "marlin-24"};
constexpr std::string_view kSchemes[] = {"auto", "compressed-tensors", "gptq", "marlin-24", "gguf",
                                         "mlx"};
constexpr std::string_view kBackends[] = {"auto", "cpu", "metal", "cuda"};
static_assert(MARLIN_COMPUTE_W16 == std::size(kComputes) - 1 &&
              MARLIN_LAYOUT_MARLIN_24 == std::size(kLayouts) - 1 &&
              MARLIN_SCHEME_MLX == std::size(kSchemes) - 1 &&
              MARLIN_BACKEND_CUDA == std::size(kBackends) - 1);

constexpr marlin_format kMeasured[] = {MARLIN_FORMAT_INT4, MARLIN_FORMAT_FP4, MARLIN_FORMAT_MXFP4,
                                       MARLIN_FORMAT_NVFP4, MARLIN_FORMAT_INT8};
constexpr marlin_format kQuantized[] = {
    MARLIN_FORMAT_INT4, MARLIN_FORMAT_MXFP4, MARLIN_FORMAT_NVFP4, MARLIN_FORMAT_INT2,
    MARLIN_FORMAT_INT3, MARLIN_FORMAT_INT5,  MARLIN_FORMAT_INT6,  MARLIN_FORMAT_UINT8};
/// Types of GGUF's blocks, as ggml writes them and as people do, and the weights in them.
struct BlockRow {
  const char* ggml;
  std::string_view name;
  marlin_format format;
  uint32_t flags = 0;
};
constexpr uint32_t kAdds = MARLIN_PACK_ADDITIVE_ZEROS, kTwoLevels = MARLIN_PACK_TWO_LEVEL_SCALES;
constexpr BlockRow kBlockTypes[] = {{"Q2_K", "q2_k", MARLIN_FORMAT_INT2, kAdds | kTwoLevels},
                                    {"Q3_K", "q3_k", MARLIN_FORMAT_INT3, kTwoLevels},
                                    {"Q4_0", "q4_0", MARLIN_FORMAT_INT4},
                                    {"Q4_1", "q4_1", MARLIN_FORMAT_INT4, kAdds},
                                    {"Q4_K", "q4_k", MARLIN_FORMAT_INT4, kAdds | kTwoLevels},
                                    {"Q5_0", "q5_0", MARLIN_FORMAT_INT5},
                                    {"Q5_1", "q5_1", MARLIN_FORMAT_INT5, kAdds},
                                    {"Q5_K", "q5_k", MARLIN_FORMAT_INT5, kAdds | kTwoLevels},
                                    {"Q6_K", "q6_k", MARLIN_FORMAT_INT6, kTwoLevels},
                                    {"Q8_0", "q8_0", MARLIN_FORMAT_INT8},
                                    {"IQ4_NL", "iq4_nl", MARLIN_FORMAT_IQ4},
                                    {"IQ4_XS", "iq4_xs", MARLIN_FORMAT_IQ4, kTwoLevels}};
constexpr std::pair<uint32_t, std::string_view> kFlags[] = {
    {MARLIN_PACK_ADDITIVE_ZEROS, "additive-zeros"},
    {MARLIN_PACK_DIVIDE_SCALE, "divide-scale"},
    {MARLIN_PACK_TWO_LEVEL_SCALES, "two-level-scales"},
    {MARLIN_PACK_GATE_UP_INTERLEAVED, "gate-up-interleaved"},
    {MARLIN_LAYER_ZEROS, "zeros"},
    {MARLIN_LAYER_ACT_ORDER, "act-order"},
    {MARLIN_LAYER_SPARSE_2_4, "2:4"},
    {MARLIN_LAYER_EXACT, "exact"},
};

// Constants of a newer library are legal and are printed as numbers.
std::string name_of(Names names, int32_t value) {
  const auto index = static_cast<size_t>(value);
  return index < names.size() ? std::string(names[index]) : std::to_string(value);
}

std::optional<int32_t> value_of(Names names, std::string_view name) {
  for (size_t i = 0; i < names.size(); ++i)
    if (is_name(name, names[i])) return static_cast<int32_t>(i);
  return std::nullopt;
}

/// Null: a format of a newer library.
const FormatRow* row_of(marlin_format format) {
  for (const FormatRow& row : kFormatRows)
    if (row.format == format) return &row;
  return nullptr;
}

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }
std::string lower(std::string_view name) {
  std::string text(name);
  for (char& c : text) c = lower(c);
  return text;
}

}  // namespace

bool is_name(std::string_view typed, std::string_view name) {
  return std::equal(typed.begin(), typed.end(), name.begin(), name.end(),
                    [](char a, char b) { return lower(a) == lower(b); });
}

std::string format_name(marlin_format format) {
  if (format == MARLIN_FORMAT_NONE) return "float";
  const FormatRow* const row = row_of(format);
  return row != nullptr ? lower(row->name) : std::to_string(format);
}
std::string format_and_group(const marlin_layer_info& info) {
  std::string name = format_name(info.format);
  if (info.group_size == 0) return name;
  return info.group_size >= info.k ? name + " row" : fmt::format("{} g{}", name, info.group_size);
}
std::string shape_text(const marlin_layer_info& info) {
  const std::string experts = info.experts > 1 ? fmt::format("{} x ", info.experts) : "";
  return fmt::format("{}{} x {}", experts, info.n, info.k);
}
std::string compute_name(marlin_compute compute) { return name_of(kComputes, compute); }
std::string dtype_name(marlin_dtype dtype) {
  if (dtype == 0) return "-";
  const char* const name = metal_marlin::dtype_name(dtype);
  return name != nullptr ? lower(name) : std::to_string(dtype);
}
std::string layout_name(marlin_layout layout) { return name_of(kLayouts, layout); }
std::string backend_name(marlin_backend backend) { return name_of(kBackends, backend); }

std::vector<std::string> flag_list(uint32_t flags) {
  std::vector<std::string> names;
  for (const auto& [bit, name] : kFlags) {
    if (flags & bit) names.emplace_back(name);
  }
  return names;
}

std::string flag_names(uint32_t flags) {
  return fmt::format("{}", fmt::join(flag_list(flags), ", "));
}

std::optional<marlin_backend> parse_backend(std::string_view name) {
  return value_of(kBackends, name);
}
std::optional<marlin_format> parse_format(std::string_view name) {
  for (const FormatRow& row : kFormatRows)
    if (is_name(name, row.name)) return row.format;
  return std::nullopt;
}
std::optional<marlin_scheme> parse_scheme(std::string_view name) {
  return value_of(kSchemes, name);
}
std::optional<marlin_compute> parse_compute(std::string_view name) {
  return value_of(kComputes, name);
}
std::optional<marlin_dtype> parse_activation_dtype(std::string_view name) {
  for (const marlin_dtype dtype : {MARLIN_F32, MARLIN_F16, MARLIN_BF16})
    if (is_name(name, dtype_name(dtype))) return dtype;
  return std::nullopt;
}

std::vector<std::string_view> block_types() {
  std::vector<std::string_view> names;
  for (const BlockRow& row : kBlockTypes) names.push_back(row.name);
  return names;
}
std::string block_type_of(marlin_format format, uint32_t flags) {
  for (const BlockRow& row : kBlockTypes)
    if (row.format == format && row.flags == (flags & (kAdds | kTwoLevels))) return row.ggml;
  return "";
}

std::optional<WeightType> parse_weight_type(std::string_view name) {
  if (const auto format = parse_format(name)) return WeightType{*format};
  for (const BlockRow& row : kBlockTypes)
    if (is_name(name, row.name)) return WeightType{row.format, row.ggml, row.flags};
  return std::nullopt;
}
std::string weight_type_name(const WeightType& type) {
  for (const BlockRow& row : kBlockTypes)
    if (type.block != nullptr && std::string_view(row.ggml) == type.block)
      return std::string(row.name);
  return format_name(type.format);
}
std::string weight_types() {
  std::vector<std::string> names;
  for (const FormatRow& row : kFormatRows) names.push_back(lower(row.name));
  for (const BlockRow& row : kBlockTypes) names.emplace_back(row.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

std::span<const marlin_format> measured_formats() { return kMeasured; }
std::span<const marlin_format> quantize_formats() { return kQuantized; }

bool has_sparse_form(marlin_format format) {
  const FormatRow* const row = row_of(format);
  return row != nullptr && row->has_sparse_form();
}

int code_bits(marlin_format format) {
  const FormatRow* const row = row_of(format);
  return row != nullptr ? row->code_bits : 4;
}

uint32_t default_group(marlin_format format) {
  const FormatRow* const row = row_of(format);
  return row != nullptr ? static_cast<uint32_t>(row->default_group) : 32;
}

std::string count_text(uint64_t count) {
  static constexpr std::array<const char*, 4> units = {"", " thousand", " million",
                                                       " thousand million"};
  auto number = static_cast<double>(count);
  size_t unit = 0;
  while (number >= 999.5 && unit + 1 < units.size()) {
    number /= 1000;
    ++unit;
  }
  return fmt::format("{:.{}f}{}", number, unit == 0 || number >= 99.95 ? 0 : 1, units[unit]);
}

std::string bytes_text(double bytes) {
  static constexpr std::array<const char*, 5> units = {"B", "kB", "MB", "GB", "TB"};
  size_t unit = 0;
  while (bytes >= 999.5 && unit + 1 < units.size()) {
    bytes /= 1000;
    ++unit;
  }
  return fmt::format("{:.{}f} {}", bytes, unit == 0 || bytes >= 99.95 ? 0 : 1, units[unit]);
}

std::string seconds_text(double seconds) {
  const auto text = [](double v, const char* unit) {
    return fmt::format("{:.{}f} {}", v, v >= 99.95 ? 0 : v >= 9.995 ? 1 : 2, unit);
  };
  if (seconds < 999.5e-6) return text(seconds * 1e6, "us");
  return seconds < 0.9995 ? text(seconds * 1e3, "ms") : text(seconds, "s");
}

}  // namespace metal_marlin::tools
