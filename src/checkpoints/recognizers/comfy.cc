#include "checkpoints/recognizers/comfy.h"

#include <algorithm>
#include <string>

#include "checkpoints/json.h"

namespace metal_marlin {
namespace {

constexpr uint32_t kMaxMark = 64u << 10;  // bytes of the text

/// Members that say how the product is to be computed, and nothing about the weights.
bool is_harmless(std::string_view key) { return key == "full_precision_matrix_mult"; }

}  // namespace

bool take_comfy(const Finder& finder, std::string_view format, Finding& found) {
  TensorView mark = finder.find(found.layer.name, ".comfy_quant");
  if (!present(mark)) return false;
  found.others.push_back(mark);
  std::string said, unknown, key;
  bool holds = false;  // an unknown member is there and not false or null
  const auto visit = [&](const JsonEvent& e) -> Status {
    using Kind = JsonEvent::Kind;
    if (e.kind == Kind::key) {
      key = e.text.substr(0, 32);
    } else if (e.kind == Kind::string && e.depth == 1 && key == "format") {
      said = e.text.substr(0, 32);
    } else if (e.depth == 1 && e.kind != Kind::end_object && !is_harmless(key) && !key.empty()) {
      holds = e.kind != Kind::null && !(e.kind == Kind::boolean && e.integer == 0);
      if (holds && unknown.empty()) unknown = key;
    }
    return {};
  };
  const std::string_view text(reinterpret_cast<const char*>(mark.data), mark.bytes);
  const Status status = walk_json({text, mark.file, mark.file_offset, kMaxMark, 4}, visit);
  if (!found.layer.status.ok()) return true;
  if (!status.ok()) {
    found.layer.status = status;
  } else if (said != format || !unknown.empty()) {
    found.layer.status =
        view_error(mark, MARLIN_E_UNSUPPORTED, "expected the format '%.*s' and no '%s', found '%s'",
                   static_cast<int>(format.size()), format.data(),
                   unknown.empty() ? "more" : unknown.c_str(), said.c_str());
  }
  return true;
}

}  // namespace metal_marlin
