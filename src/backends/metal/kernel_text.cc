#include "backends/metal/kernel_text.h"

#include <algorithm>
#include <cctype>

#include "backends/gpu/layout.h"

namespace metal_marlin::metal {
namespace {

/// The type of a kind of codes in shaders/metal/decode.h: Fp4Sparse for fp4_sparse.
std::string type_of(std::string_view codes) {
  std::string type;
  for (size_t i = 0; i < codes.size(); ++i)
    if (codes[i] != '_')
      type += i == 0 || codes[i - 1] == '_' ? static_cast<char>(std::toupper(codes[i])) : codes[i];
  return type;
}

std::string_view element_of(std::string_view activation) {
  if (activation == "f32") return "float";
  if (activation == "f16") return "half";
  return activation == "bf16" ? "bfloat" : "char";
}

bool is_rows(std::string_view word) {
  return word.size() > 1 && word[0] == 'm' && std::isdigit(word[1]) != 0;
}

/// The slots of K that a product of tensor operations covers: a group, or 64 of a longer one.
std::string step_of(std::span<const device::Constant> constants) {
  uint32_t shift = 6;
  for (const device::Constant& constant : constants)
    if (constant.index == MARLIN_CONSTANT_GROUP_SHIFT) shift = std::clamp(constant.bits, 4u, 6u);
  return std::to_string(1u << shift);
}

}  // namespace

std::vector<std::string_view> words_of(std::string_view text, char separator) {
  std::vector<std::string_view> words;
  for (size_t end = 0; end != std::string_view::npos;) {
    end = text.find(separator);
    words.push_back(text.substr(0, end));
    if (end != std::string_view::npos) text.remove_prefix(end + 1);
  }
  return words;
}

std::string_view family_of(std::string_view kernel) {
  for (const std::string_view of_metal4 : {"tensor", "nax"})
    if (kernel.ends_with(of_metal4)) return of_metal4;
  return kernel.substr(0, kernel.find('_'));
}

std::string macros_of(std::string_view kernel, std::span<const device::Constant> constants) {
  const std::vector<std::string_view> words = words_of(kernel, '_');
  const auto rows = std::find_if(words.begin(), words.end(), is_rows);
  if (words[0] == "unpack" && words.size() > 1) {
    const std::string codes(kernel.substr(words[0].size() + 1));
    return "#define MARLIN_UNPACKED(X) X(" + codes + ", " + type_of(codes) + ")\n";
  }
  if (rows == words.end() || rows - words.begin() < 3) return {};
  const std::string_view activation = rows[-1];
  const std::string codes(kernel.substr(
      words[0].size() + 1, static_cast<size_t>(activation.data() - words[1].data()) - 1));
  std::string text = "#define MARLIN_PRODUCTS(X) X(" + codes + ", " + type_of(codes) + ", ";
  text.append(activation).append(", ").append(element_of(activation)).append(")\n");
  const std::string m(rows->substr(1));
  if (family_of(kernel) == "tensor")
    return text + "#define MARLIN_TENSOR_STEPS(X) X(" + step_of(constants) + ")\n";
  if (family_of(kernel) == "nax")
    return text + "#define MARLIN_NAX_ROWS(X, ...) X(__VA_ARGS__, " + m + ")\n";
  if (rows + 3 > words.end())
    return text + "#define MARLIN_GEMV_ROWS(X, ...) X(__VA_ARGS__, " + m + ")\n";
  const char* const tile = words.back() == "direct" ? "DIRECT" : "THREADGROUP";
  return text + "#define MARLIN_REGDECODE_TILES(DIRECT, THREADGROUP, ...) " + tile +
         "(__VA_ARGS__, " + m + ", " + std::string(rows[1].substr(1)) + ")\n";
}

}  // namespace metal_marlin::metal
