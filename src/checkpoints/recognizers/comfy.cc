#include "checkpoints/recognizers/comfy.h"

#include <string>

#include "checkpoints/comfy_mark.h"

namespace metal_marlin {

bool take_comfy(const Finder& finder, std::string_view format, Finding& found) {
  TensorView tensor = finder.find(found.layer.name, ".comfy_quant");
  if (!present(tensor)) return finder.config.is_comfy;
  found.others.push_back(tensor);
  if (!found.layer.status.ok()) return true;
  constexpr uint32_t kMaxMark = 64u << 10;  // bytes of the text
  const std::string_view text(reinterpret_cast<const char*>(tensor.data), tensor.bytes);
  const auto mark = read_comfy_mark({text, tensor.file, tensor.file_offset, kMaxMark, 4}, 1);
  if (!mark.ok()) {
    found.layer.status = mark.status();
    return true;
  }
  const std::string& unknown = mark.value().unknown;
  if (unknown.empty() && mark.value().formats == std::set{std::string(format)}) return true;
  found.layer.status = view_error(
      tensor, MARLIN_E_UNSUPPORTED, "expected the format '%.*s' and no '%s', found '%s'",
      static_cast<int>(format.size()), format.data(), unknown.empty() ? "more" : unknown.c_str(),
      mark.value().formats.empty() ? "" : mark.value().formats.begin()->c_str());
  return true;
}

}  // namespace metal_marlin
