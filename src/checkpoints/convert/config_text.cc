#include "checkpoints/convert/config_text.h"

#include <algorithm>
#include <iterator>

#include "checkpoints/config_section.h"

namespace metal_marlin {
namespace {

using Kind = JsonEvent::Kind;

/// Whether the value of this key says how a model is quantized, now or in older files.
bool is_quantization(std::string_view key) {
  constexpr std::string_view kKeys[] = {"quantization_config", "compression_config",
                                        "quantization"};
  return std::find(std::begin(kKeys), std::end(kKeys), key) != std::end(kKeys);
}

/// Copies a text without the members that say how the model is quantized. They are at the top, or
/// in text_config for models that also see or hear.
class Copier {
 public:
  Copier(const char* key, const std::function<void(JsonWriter&)>& quantization)
      : key_(key), quantization_(quantization) {}

  void visit(const JsonEvent& e) {
    if (skipping_ != 0) return skip(e);
    switch (e.kind) {
      case Kind::object:
      case Kind::array:
        out_.begin(e.kind == Kind::object ? '{' : '[');
        return;
      case Kind::end_object:
        if (e.depth == 1) {
          out_.key(key_);
          quantization_(out_);
        }
        out_.end('}');
        return;
      case Kind::end_array:
        out_.end(']');
        return;
      case Kind::key:
        if (e.depth == 1) in_text_config_ = e.text == "text_config";
        if ((e.depth == 1 || (e.depth == 2 && in_text_config_)) && is_quantization(e.text)) {
          skipping_ = e.depth;
        } else {
          out_.key(e.text);
        }
        return;
      default:
        return scalar(e);
    }
  }
  std::string text() const { return out_.text() + "\n"; }

 private:
  void scalar(const JsonEvent& e) {
    if (e.kind == Kind::string) {
      out_.string(e.text);
    } else if (e.kind == Kind::integer) {
      out_.number(std::to_string(e.integer));
    } else if (e.kind == Kind::boolean) {
      out_.boolean(e.integer != 0);
    } else if (e.kind == Kind::null) {
      out_.null();
    } else {
      out_.number(e.text);
    }
  }
  /// A scalar's depth is that of its key; an object or array ends one deeper.
  void skip(const JsonEvent& e) {
    const bool opens = e.kind == Kind::object || e.kind == Kind::array;
    const bool closes = e.kind == Kind::end_object || e.kind == Kind::end_array;
    if (closes ? e.depth == skipping_ + 1 : !opens && e.depth == skipping_) skipping_ = 0;
  }

  const char* key_;
  const std::function<void(JsonWriter&)>& quantization_;
  JsonWriter out_;
  int skipping_ = 0;  // the depth of the key whose value is left out
  bool in_text_config_ = false;
};

}  // namespace

Result<std::string> config_text(std::string_view old, const char* key,
                                const std::function<void(JsonWriter&)>& quantization) {
  Copier copier(key, quantization);
  const std::string_view text = old.empty() ? "{}" : old;
  MARLIN_RETURN_IF_ERROR(walk_config(text, "config.json", [&](const JsonEvent& e) -> Status {
    if (e.depth == 0 || (e.depth == 1 && e.kind == Kind::array)) {
      return Status::error(MARLIN_E_FORMAT, "config.json: byte 0: expected an object");
    }
    copier.visit(e);
    return {};
  }));
  return copier.text();
}

}  // namespace metal_marlin
