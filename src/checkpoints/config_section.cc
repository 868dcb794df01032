#include "checkpoints/config_section.h"

#include <algorithm>
#include <cmath>

namespace metal_marlin {
namespace {

using Kind = JsonEvent::Kind;

constexpr uint32_t kMaxConfig = 16u << 20;
constexpr size_t kMaxWord = 64;

std::optional<int64_t> integer_of(const JsonEvent& e) {
  const bool whole = e.kind == Kind::integer || e.kind == Kind::negative;
  if (!whole || std::fabs(e.number) >= 1e15) return std::nullopt;
  return static_cast<int64_t>(e.number);
}
std::optional<bool> bool_of(const JsonEvent& e) {
  return e.kind == Kind::boolean ? std::optional(e.integer != 0) : std::nullopt;
}
std::optional<std::string> word_of(const JsonEvent& e) {
  return e.kind == Kind::string ? std::optional(config_word(e.text)) : std::nullopt;
}
int32_t saturated(std::optional<int64_t> value) {
  if (!value) return QuantConfig::MlxLayer::kNone;
  return static_cast<int32_t>(std::clamp<int64_t>(*value, -INT32_MAX, INT32_MAX));
}

class ConfigReader {
 public:
  Status visit(const JsonEvent& e) {
    switch (e.kind) {
      case Kind::key:
        key_ = e.text.substr(0, kMaxWord + 1);
        key_begin_ = e.begin;
        break;
      case Kind::object:
      case Kind::array:
        open(e.kind == Kind::object);
        break;
      case Kind::end_object:
      case Kind::end_array:
        close();
        break;
      default:
        scalar(e);
    }
    return {};
  }
  ConfigSections take() { return std::move(sections_); }

 private:
  enum class KeyPlace {
    root,
    text_config,
    section,
    meta,
    quantizers,
    config_groups,
    group,
    weights,
    member,
    block,
    other
  };
  /// An enclosing object or array.
  struct Level {
    KeyPlace place = KeyPlace::other;
    ConfigSection* section = nullptr;
  };

  /// The section of this name in the root or in text_config.
  ConfigSection* section_named(KeyPlace place) {
    const bool root = place == KeyPlace::root;
    if (!root && place != KeyPlace::text_config) return nullptr;
    if (key_ == "quantization")
      return root ? &sections_.quantization : &sections_.inner_quantization;
    if (key_ == "quantization_config")
      return root ? &sections_.quantization_config : &sections_.inner_quantization_config;
    return nullptr;
  }

  Level level_of_object() {
    if (levels_.empty()) return {KeyPlace::root, &sections_.root};
    const Level& parent = levels_.back();
    if (ConfigSection* const section = section_named(parent.place))
      return {KeyPlace::section, section};
    switch (parent.place) {
      case KeyPlace::root:
      case KeyPlace::section:
        layer_ = {.name = key_begin_};
        if (key_ == "meta") return {KeyPlace::meta, parent.section};
        if (key_ == "config_groups") return {KeyPlace::config_groups, parent.section};
        if (parent.place == KeyPlace::section) return {KeyPlace::member, parent.section};
        return {key_ == "text_config" ? KeyPlace::text_config : KeyPlace::other, nullptr};
      case KeyPlace::config_groups:
        return {KeyPlace::group, parent.section};
      case KeyPlace::group:
        group_size_ = q_group_size_ = std::nullopt;
        return {key_ == "weights" ? KeyPlace::weights : KeyPlace::other, parent.section};
      default:
        return {};
    }
  }

  Level level_of_array(KeyPlace parent) {
    if (parent == KeyPlace::meta && key_ == "quantizer") {
      is_first_ = true;
      return {KeyPlace::quantizers, levels_.back().section};
    }
    const bool block = (parent == KeyPlace::section && key_ == "weight_block_size") ||
                       (parent == KeyPlace::weights && key_ == "block_structure");
    return block ? Level{KeyPlace::block, levels_.back().section} : Level{};
  }

  void open(bool object) {
    const KeyPlace parent = levels_.empty() ? KeyPlace::other : levels_.back().place;
    if (parent == KeyPlace::quantizers) is_first_ = false;
    if (ConfigSection* const section = section_named(parent)) {
      section->is_there = true;
      section->is_object = object;
    }
    if (object) {
      levels_.push_back(level_of_object());
    } else {
      levels_.push_back(level_of_array(parent));
    }
  }

  void close() {
    const Level level = levels_.back();
    levels_.pop_back();
    if (level.place == KeyPlace::weights) {
      const auto size = group_size_ ? group_size_ : q_group_size_;
      if (size && *size > 0) level.section->config_groups.push_back(*size);
    }
    // A member of a section that is not part of another writer's config is a layer of MLX, whatever
    // its name is.
    const bool member = level.place == KeyPlace::member || level.place == KeyPlace::meta ||
                        level.place == KeyPlace::config_groups;
    if (!member || levels_.back().place != KeyPlace::section) return;
    constexpr int32_t kNone = QuantConfig::MlxLayer::kNone;
    if (layer_.mode == 0 && layer_.bits == kNone && layer_.group_size == kNone) return;
    level.section->mlx_layers.push_back(layer_);
  }

  void scalar(const JsonEvent& e) {
    if (levels_.empty()) return;
    const Level& level = levels_.back();
    if (ConfigSection* const section = section_named(level.place)) section->is_there = true;
    switch (level.place) {
      case KeyPlace::root:
      case KeyPlace::section:
        return take(e, *level.section);
      case KeyPlace::meta:
        if (key_ == "quantizer") level.section->quantizer = word_of(e).value_or("");
        return take(e, layer_);
      case KeyPlace::quantizers:
        if (is_first_) level.section->quantizer = word_of(e).value_or("");
        is_first_ = false;
        return;
      case KeyPlace::weights:
        if (key_ == "group_size") group_size_ = integer_of(e);
        if (key_ == "q_group_size") q_group_size_ = integer_of(e);
        if (key_ == "num_bits") add_width(integer_of(e).value_or(0), *level.section);
        return;
      case KeyPlace::member:
      case KeyPlace::config_groups:
        return take(e, layer_);
      case KeyPlace::block:
        if (level.section->block.size() < 2)
          level.section->block.push_back(integer_of(e).value_or(0));
        return;
      default:
        return;
    }
  }

  static void add_width(int64_t bits, ConfigSection& section) {
    if (bits >= 1 && bits < 32) section.num_bits |= uint32_t{1} << bits;
  }

  void take(const JsonEvent& e, ConfigSection& section) const {
    if (key_ == "quant_method") section.quant_method = word_of(e);
    if (key_ == "version") section.version = word_of(e);
    if (key_ == "checkpoint_format") section.checkpoint_format = word_of(e);
    if (key_ == "format") section.format = word_of(e);
    if (key_ == "mode") section.mode = word_of(e);
    if (key_ == "bits") section.bits = integer_of(e);
    if (key_ == "w_bit") section.w_bit = integer_of(e);
    if (key_ == "group_size") section.group_size = integer_of(e);
    if (key_ == "q_group_size") section.q_group_size = integer_of(e);
    if (key_ == "sym") section.sym = bool_of(e);
    if (key_ == "desc_act") section.desc_act = bool_of(e);
    if (key_ == "is_marlin_format") section.is_marlin_format = bool_of(e);
  }
  void take(const JsonEvent& e, QuantConfig::MlxLayer& layer) const {
    if (key_ == "bits") layer.bits = saturated(integer_of(e));
    if (key_ == "group_size") layer.group_size = saturated(integer_of(e));
    if (key_ == "mode" && e.kind == Kind::string) layer.mode = e.begin;
  }

  ConfigSections sections_;
  std::vector<Level> levels_;
  std::string key_;  // the last key, which belongs to the next value; cut if it is longer than any
                     // known key
  uint32_t key_begin_ = 0;
  QuantConfig::MlxLayer layer_;  // of the member of a section that is being read
  std::optional<int64_t> group_size_, q_group_size_;  // of the weights of a config group
  bool is_first_ = false;                             // no item of meta.quantizer has been seen
};

}  // namespace

std::string config_word(std::string_view text) {
  std::string word(text.substr(0, kMaxWord));
  for (char& c : word) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return word;
}

Status walk_config(std::string_view text, std::string_view name,
                   const std::function<Status(const JsonEvent&)>& visit) {
  return walk_json({text, name, 0, kMaxConfig, 64}, visit);
}

Result<ConfigSections> read_config_sections(std::string_view text, std::string_view name) {
  ConfigReader reader;
  MARLIN_RETURN_IF_ERROR(
      walk_config(text, name, [&](const JsonEvent& e) { return reader.visit(e); }));
  return reader.take();
}

}  // namespace metal_marlin
