#include "checkpoints/config_section.h"

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <utility>

#include "base/utf8.h"

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
    model,  ///< an object or array of the model's config, however deep
    section,
    meta,
    quantizers,
    config_groups,
    group,
    weights,
    member,
    block,
    quark,      ///< export or global_quant_config
    transform,  ///< transform_config and all in it
    other
  };
  /// An enclosing object or array.
  struct Level {
    KeyPlace place = KeyPlace::other;
    ConfigSection* section = nullptr;
    bool speaks = true;  ///< model: of the language model
  };

  static bool holds_sections(KeyPlace place) {
    return place == KeyPlace::root || place == KeyPlace::model;
  }
  /// The sections of this name, or null.
  ConfigSection* sections_named(std::string_view name) {
    if (name == "quantization_config" || name == "compression_config")
      return &sections_.quantization_config;
    return name == "quantization" ? &sections_.quantization : nullptr;
  }
  bool is_of_sense() const {
    for (const char* sense : {"vision", "visual", "audio", "speech", "image"})
      if (key_.find(sense) != std::string::npos) return true;
    return false;
  }

  Level level_in_section(const Level& parent) {
    layer_ = {.name = key_begin_};
    if (key_ == "meta") return {KeyPlace::meta, parent.section};
    if (key_ == "config_groups") return {KeyPlace::config_groups, parent.section};
    if (key_ == "transform_config") return {KeyPlace::transform, parent.section};
    if (key_ == "export" || key_ == "global_quant_config") return {KeyPlace::quark, parent.section};
    return {KeyPlace::member, parent.section};
  }

  Level level_of_object() {
    if (levels_.empty()) return {KeyPlace::root, &sections_.root};
    const Level parent = levels_.back();
    switch (parent.place) {
      case KeyPlace::root:
      case KeyPlace::model: {
        if (sections_named(key_) != nullptr) {
          section_ = {};
          section_.is_there = true;
          kind_ = sections_named(key_);
          return {KeyPlace::section, &section_};
        }
        const Level own = level_in_section(parent);
        if (parent.place == KeyPlace::root && own.place != KeyPlace::member) return own;
        return {KeyPlace::model, nullptr, parent.speaks && !is_of_sense()};
      }
      case KeyPlace::section:
        return level_in_section(parent);
      case KeyPlace::config_groups:
        return {KeyPlace::group, parent.section};
      case KeyPlace::group:
        group_size_ = q_group_size_ = std::nullopt;
        return {key_ == "weights" ? KeyPlace::weights : KeyPlace::other, parent.section};
      case KeyPlace::quark:
        return {key_ == "weight" ? KeyPlace::quark : KeyPlace::other, parent.section};
      case KeyPlace::transform:
        return parent;
      default:
        return {};
    }
  }

  Level level_of_array(const Level& parent) {
    if (parent.place == KeyPlace::meta && key_ == "quantizer") {
      is_first_ = true;
      return {KeyPlace::quantizers, parent.section};
    }
    const bool block = (parent.place == KeyPlace::section && key_ == "weight_block_size") ||
                       (parent.place == KeyPlace::weights && key_ == "block_structure");
    if (block) return {KeyPlace::block, parent.section};
    if (parent.place == KeyPlace::transform) return parent;
    return holds_sections(parent.place) ? Level{KeyPlace::model, nullptr, parent.speaks} : Level{};
  }

  void open(bool object) {
    const Level parent = levels_.empty() ? Level{} : levels_.back();
    if (parent.place == KeyPlace::quantizers) is_first_ = false;
    levels_.push_back(object ? level_of_object() : level_of_array(parent));
    if (!object) key_.clear();
    if (levels_.back().place == KeyPlace::block) levels_.back().section->block.clear();
  }

  /// A section ends: what it says belongs to all of its name.
  void close_section() {
    const std::string name =
        kind_ == &sections_.quantization ? "quantization" : "quantization_config";
    const std::string said = merge(*kind_, std::move(section_));
    if (!said.empty() && sections_.conflict.empty())
      sections_.conflict = "objects \"" + name + "\" differ in " + said;
  }

  void close() {
    const Level level = levels_.back();
    levels_.pop_back();
    if (level.place == KeyPlace::section) return close_section();
    if (level.place == KeyPlace::weights) {
      const auto size = group_size_ ? group_size_ : q_group_size_;
      if (size && *size > 0) level.section->config_groups.push_back(*size);
    }
    // A member of a section that is not part of another writer's config is a layer of MLX, under
    // any name.
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
    switch (level.place) {
      case KeyPlace::root:
        take(e, *level.section);
        return take_size(e, true);
      case KeyPlace::model:
        if (level.speaks) take_size(e, false);
        return;
      case KeyPlace::section:
        return take(e, *level.section);
      case KeyPlace::quark:
        if (key_ == "pack_method") level.section->pack_method = word_of(e);
        if (key_ == "dtype") level.section->weight_dtype = word_of(e);
        return;
      case KeyPlace::transform:
        // "weight_input" and "weight_output" were done when the file was written.
        if (key_ == "location" && !word_of(e).value_or("").starts_with("weight"))
          level.section->turns_activations = true;
        return;
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

  /// The root's sizes come before those of inner models, and those of experts before others.
  void take_size(const JsonEvent& e, bool root) {
    ModelSizes& sizes = sections_.sizes;
    const auto set = [&](int64_t& size, int& rank, int own) {
      const int64_t value = integer_of(e).value_or(0);
      own = 2 * own + (root ? 1 : 0);
      if (value <= 0 || own <= rank) return;
      size = value;
      rank = own;
    };
    if (key_ == "hidden_size" || key_ == "d_model") set(sizes.hidden, ranks_[0], 1);
    if (key_ == "moe_intermediate_size") set(sizes.intermediate, ranks_[1], 2);
    if (key_ == "intermediate_size") set(sizes.intermediate, ranks_[1], 1);
    for (const char* name : {"num_experts", "n_routed_experts", "num_local_experts"})
      if (key_ == name) set(sizes.experts, ranks_[2], 1);
    if (key_ == "model_type" && (root || sizes.model_type.empty()))
      sizes.model_type = word_of(e).value_or("");
  }

  void take(const JsonEvent& e, ConfigSection& section) const {
    if (key_ == "packing_format") section.packing_format = word_of(e);
    if (key_ == "backend") section.backend = word_of(e);
    if (key_ == "quant_algo") section.quant_algo = word_of(e);
    if (key_ == "pack_dtype") section.pack_dtype = word_of(e);
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
  ConfigSection section_;          // that is being read
  ConfigSection* kind_ = nullptr;  // where it goes
  int ranks_[3] = {};              // of the sizes that were taken
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
  for (char& c : word) c = small_letter(c);
  return word;
}

namespace {

template <class T>
void merge(const char* name, std::optional<T>& into, std::optional<T>&& from, std::string& said) {
  if (!from) return;
  if (into && *into != *from && said.empty()) {
    const auto text = [](const auto& value) {
      if constexpr (std::is_same_v<T, std::string>) {
        return "\"" + value + "\"";
      } else if constexpr (std::is_same_v<T, bool>) {
        return std::string(value ? "true" : "false");
      } else {
        return std::to_string(value);
      }
    };
    said = std::string(name) + ": " + text(*into) + " and " + text(*from);
  }
  if (!into) into = std::move(from);
}

template <class T>
void merge(std::vector<T>& into, std::vector<T>&& from) {
  if (into.empty()) {
    into = std::move(from);
  } else {
    into.insert(into.end(), from.begin(), from.end());
  }
}

}  // namespace

std::string merge(ConfigSection& into, ConfigSection&& from) {
  std::string said;
  const auto merge_all = [&](auto... member) {
    (
        [&] {
          const auto [name, at] = member;
          merge(name, into.*at, std::move(from.*at), said);
        }(),
        ...);
  };
  using S = ConfigSection;
  merge_all(std::pair{"quant_method", &S::quant_method}, std::pair{"version", &S::version},
            std::pair{"checkpoint_format", &S::checkpoint_format}, std::pair{"format", &S::format},
            std::pair{"mode", &S::mode}, std::pair{"packing_format", &S::packing_format},
            std::pair{"backend", &S::backend}, std::pair{"quant_algo", &S::quant_algo},
            std::pair{"pack_dtype", &S::pack_dtype}, std::pair{"pack_method", &S::pack_method},
            std::pair{"dtype", &S::weight_dtype}, std::pair{"bits", &S::bits},
            std::pair{"w_bit", &S::w_bit}, std::pair{"group_size", &S::group_size},
            std::pair{"q_group_size", &S::q_group_size}, std::pair{"sym", &S::sym},
            std::pair{"is_marlin_format", &S::is_marlin_format});
  if (!into.desc_act) into.desc_act = from.desc_act;
  if (into.quantizer.empty()) into.quantizer = std::move(from.quantizer);
  if (said.empty() && !into.block.empty() && !from.block.empty() && into.block != from.block)
    said = "the size of blocks";
  if (into.block.empty()) into.block = std::move(from.block);
  merge(into.config_groups, std::move(from.config_groups));
  merge(into.mlx_layers, std::move(from.mlx_layers));
  into.num_bits |= from.num_bits;
  into.turns_activations |= from.turns_activations;
  into.is_there |= from.is_there;
  return said;
}

Status walk_config(std::string_view text, std::string_view name,
                   const std::function<Status(const JsonEvent&)>& visit) {
  return walk_json({text, name, 0, kMaxConfig, 64, true}, visit);
}

Result<ConfigSections> read_config_sections(std::string_view text, std::string_view name) {
  ConfigReader reader;
  MARLIN_RETURN_IF_ERROR(
      walk_config(text, name, [&](const JsonEvent& e) { return reader.visit(e); }));
  return reader.take();
}

}  // namespace metal_marlin
