#include "checkpoints/comfy_mark.h"

namespace metal_marlin {
namespace {

/// Says how the product is to be computed, and nothing about the weights.
bool is_harmless(std::string_view key) { return key == "full_precision_matrix_mult"; }

}  // namespace

Result<ComfyMark> read_comfy_mark(const JsonText& json, int depth) {
  ComfyMark mark;
  std::string key;
  const auto visit = [&](const JsonEvent& e) -> Status {
    using Kind = JsonEvent::Kind;
    if (e.kind == Kind::key) key = e.depth == depth ? e.text.substr(0, 32) : std::string_view();
    if (e.depth != depth || e.kind == Kind::key || key.empty()) return {};
    if (key == "format" && e.kind == Kind::string) {
      if (mark.formats.size() < 16) mark.formats.insert(std::string(e.text.substr(0, 32)));
    } else if (!is_harmless(key) && e.kind != Kind::null && e.kind != Kind::end_object &&
               !(e.kind == Kind::boolean && e.integer == 0)) {
      mark.unknown = key;
    }
    key.clear();
    return {};
  };
  MARLIN_RETURN_IF_ERROR(walk_json(json, visit));
  return mark;
}

}  // namespace metal_marlin
