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
  const ComfyMark& said = mark.value();
  if (!said.unknown.empty()) {
    found.layer.status = view_error(tensor, MARLIN_E_UNSUPPORTED,
                                    "its member '%s' is not known, and the values may depend on it",
                                    said.unknown.c_str());
  } else if (said.formats != std::set{std::string(format)}) {
    found.layer.status =
        view_error(tensor, MARLIN_E_UNSUPPORTED, "expected the format '%.*s', found '%s'",
                   static_cast<int>(format.size()), format.data(),
                   said.formats.empty() ? "" : said.formats.begin()->c_str());
  }
  return true;
}

}  // namespace metal_marlin
