#include "architecture.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "attention.h"

namespace llm {

const TensorNames kGgufNames = {.embedding = "token_embd",
                                .norm = "output_norm",
                                .head = "output",
                                .block = "blk.",
                                .attention_norm = "attn_norm",
                                .query = "attn_q",
                                .key = "attn_k",
                                .value = "attn_v",
                                .attention_out = "attn_output",
                                .mlp_norm = "ffn_norm",
                                .gate = "ffn_gate",
                                .up = "ffn_up",
                                .down = "ffn_down",
                                .query_norm = "attn_q_norm",
                                .key_norm = "attn_k_norm",
                                .attention_result_norm = "post_attention_norm",
                                .mlp_result_norm = "post_ffw_norm",
                                .sinks = "attn_sinks",
                                .router = "ffn_gate_inp",
                                .expert_gate = "ffn_gate_exps",
                                .expert_up = "ffn_up_exps",
                                .expert_down = "ffn_down_exps",
                                .rotation_factors = "rope_freqs.weight",
                                .rotate_halves = false};
const TensorNames kHuggingFaceNames = {.embedding = "model.embed_tokens",
                                       .norm = "model.norm",
                                       .head = "lm_head",
                                       .block = "model.layers.",
                                       .attention_norm = "input_layernorm",
                                       .query = "self_attn.q_proj",
                                       .key = "self_attn.k_proj",
                                       .value = "self_attn.v_proj",
                                       .attention_out = "self_attn.o_proj",
                                       .mlp_norm = "post_attention_layernorm",
                                       .gate = "mlp.gate_proj",
                                       .up = "mlp.up_proj",
                                       .down = "mlp.down_proj",
                                       .query_norm = "self_attn.q_norm",
                                       .key_norm = "self_attn.k_norm",
                                       .attention_result_norm = "",
                                       .mlp_result_norm = "",
                                       .sinks = "",
                                       .router = "mlp.gate",
                                       .expert_gate = "mlp.experts.gate_proj",
                                       .expert_up = "mlp.experts.up_proj",
                                       .expert_down = "mlp.experts.down_proj",
                                       .rotation_factors = "",
                                       .rotate_halves = true};

namespace {

// GGUF's converter reorders the rows of Llama's q and k so that pairs are neighbors, and no others.
// Folders of Gemma name its four norms in another way and store them less 1; those of gpt-oss name
// its experts in another way.
constexpr Architecture kArchitectures[] = {
    {.rotation_factors = true},
    {.name = "qwen2", .rotate_halves = true, .qkv_bias = true},
    {.name = "qwen3", .rotate_halves = true, .head_norms = true},
    {.name = "qwen3moe",
     .folder_name = "qwen3_moe",
     .rotate_halves = true,
     .head_norms = true,
     .mixtures = true},
    {.name = "gemma3",
     .rotate_halves = true,
     .head_norms = true,
     .result_norms = true,
     .scaled_embedding = true,
     .gelu = true,
     .in_folders = false,
     .local_rotation = true,
     .local_period = 6,
     .wide_layers = 62},
    {.name = "gpt-oss",
     .rotate_halves = true,
     .qkv_bias = true,
     .all_biases = true,
     .sinks = true,
     .swiglu_oai = true,
     .mixtures = true,
     .in_folders = false,
     .yarn = true,
     .mlp_norm = "post_attention_norm",
     .local_period = 2},
};

const char* name_in_folders(const Architecture& architecture) {
  return architecture.folder_name ? architecture.folder_name : architecture.name;
}

// Architectures that have a key: all, those with one MLP a block, or those with mixtures of them.
enum class Of { all, one, mixtures };

// One hyper-parameter: its key in a GGUF behind the architecture's name, and in config.json.
struct Key {
  const char *gguf, *config;
  int64_t HyperParameters::* whole;
  double HyperParameters::* real;
  bool required;
  Of of = Of::all;

  bool belongs_to(const Architecture& architecture) const {
    return of == Of::all || (of == Of::mixtures) == architecture.mixtures;
  }
};
constexpr Key kYarnContext = {"original_context_length", nullptr, &HyperParameters::yarn_context,
                              nullptr, true};
constexpr Key kRotationBase = {"rope.freq_base", "rope_theta", nullptr,
                               &HyperParameters::rotation_base, false};
// config: nullptr where no architecture that folders may have has it.
constexpr Key kKeys[] = {
    {"block_count", "num_hidden_layers", &HyperParameters::layers, nullptr, true},
    {"embedding_length", "hidden_size", &HyperParameters::width, nullptr, true},
    {"feed_forward_length", "intermediate_size", &HyperParameters::feed_forward, nullptr, true,
     Of::one},
    {"expert_feed_forward_length", "moe_intermediate_size", &HyperParameters::feed_forward, nullptr,
     true, Of::mixtures},
    {"expert_count", "num_experts", &HyperParameters::experts, nullptr, true, Of::mixtures},
    {"expert_used_count", "num_experts_per_tok", &HyperParameters::experts_used, nullptr, true,
     Of::mixtures},
    {"attention.head_count", "num_attention_heads", &HyperParameters::heads, nullptr, true},
    {"attention.head_count_kv", "num_key_value_heads", &HyperParameters::key_value_heads, nullptr,
     false},
    {"attention.key_length", "head_dim", &HyperParameters::head_size, nullptr, false},
    {"context_length", "max_position_embeddings", &HyperParameters::context, nullptr, true},
    kRotationBase,
    {"rope.scaling.factor", nullptr, nullptr, &HyperParameters::rotation_factor, false},
    {"rope.freq_base_swa", nullptr, nullptr, &HyperParameters::local_rotation_base, false},
    {"attention.sliding_window", nullptr, &HyperParameters::window, nullptr, false},
    {"attention.sliding_window_pattern", nullptr, &HyperParameters::local_period, nullptr, false},
    {"attention.layer_norm_rms_epsilon", "rms_norm_eps", nullptr, &HyperParameters::norm_epsilon,
     true},
};

[[noreturn]] void fail(const std::string& where, const std::string& what) {
  throw std::runtime_error(where + ": " + what);
}

const Architecture& find_architecture(const std::string& where, const std::string& found,
                                      bool in_folder) {
  std::string known;
  for (const Architecture& row : kArchitectures) {
    if (in_folder && !row.in_folders) continue;
    const char* const name = in_folder ? name_in_folders(row) : row.name;
    if (name == found) return row;
    known += std::string(known.empty() ? "" : ", ") + name;
  }
  fail(where,
       "expected one of the architectures that are known (" + known + "), found '" + found + "'");
}

// name: of the key, as this file has it.
void set(const std::string& where, const Key& key, const std::string& name, double value,
         HyperParameters& hyper) {
  constexpr int64_t kMost = 1 << 24;  // far above any model, and products of two still fit
  const bool in_range = key.whole ? value >= 1 && value <= kMost && value == std::trunc(value)
                                  : value > 0 && value < 1e12;
  if (!in_range) {
    fail(where, name + ": expected " +
                    (key.whole ? "a whole number from 1 to " + std::to_string(kMost)
                               : std::string("a number above 0 and below 1e12")) +
                    ", found " + std::to_string(value));
  }
  if (key.whole)
    hyper.*key.whole = static_cast<int64_t>(value);
  else
    hyper.*key.real = value;
}

std::string text_of(double number) {
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", number);
  return text;
}

void complete(const std::string& where, HyperParameters& h) {
  if (!h.key_value_heads) h.key_value_heads = h.heads;
  if (!h.head_size) h.head_size = h.width / h.heads;
  if (h.heads % h.key_value_heads != 0 || h.head_size < 16 || h.head_size % 16 != 0 ||
      h.head_size > 1024 || h.layers > 4096) {
    fail(where,
         "heads, key-value heads and their size do not fit each other: " + std::to_string(h.heads) +
             ", " + std::to_string(h.key_value_heads) + ", " + std::to_string(h.head_size));
  }
  if (h.experts_used > h.experts) {
    fail(where, "a token has " + std::to_string(h.experts_used) +
                    " experts, expected at most as many as there are, " +
                    std::to_string(h.experts));
  }
  if (h.layers == h.architecture.wide_layers)
    h.query_scale =
        std::sqrt(static_cast<double>(h.head_size * h.heads) / static_cast<double>(h.width));
}

// prefix: of the keys that say how positions are scaled.
void check_scaling(const Metadata& metadata, const std::string& prefix, HyperParameters& hyper) {
  const std::string& where = metadata.file();
  const std::string key = prefix + "type";
  const std::string type = metadata.has(key) ? metadata.text(key) : "linear";
  const bool yarn = type == "yarn" && hyper.architecture.yarn;
  if (type != "none" && type != "linear" && !yarn) {
    fail(where, key + ": expected " +
                    (hyper.architecture.yarn ? "none, linear or yarn" : "none or linear") +
                    ", found '" + type + "'");
  }
  if (type == "none") hyper.rotation_factor = 1;
  if (!yarn) return;
  set(where, kYarnContext, prefix + kYarnContext.gguf, metadata.number(prefix + kYarnContext.gguf),
      hyper);
}

// Keys that change nothing of a text, or that are read elsewhere; or, with a dot at the end, all
// keys that begin so.
constexpr std::string_view kHarmless[] = {"attention.layer_norm_epsilon",
                                          "expert_feed_forward_length",
                                          "expert_shared_feed_forward_length",
                                          "expert_used_count",
                                          "feed_forward_length",
                                          "mm.",
                                          "pooling_type",
                                          "rope.scaling.finetuned",
                                          "rope.scaling.original_context_length",
                                          "rope.scaling.type",
                                          "tensor_data_layout",
                                          "vision.",
                                          "vocab_size"};

bool is_harmless(std::string_view key) {
  return std::any_of(std::begin(kHarmless), std::end(kHarmless), [&](std::string_view each) {
    return each.ends_with('.') ? key.starts_with(each) : key == each;
  });
}

// Keys that may have one value, because this program does nothing else.
constexpr std::pair<std::string_view, double> kOneValue[] = {
    {"attention.causal", 1},
    {"attention.clamp_kqv", 0},
    {"attention.max_alibi_bias", 0},
    {"attention.scale", 0},
    {"attn_logit_softcapping", 0},
    {"embedding_scale", 1},
    {"expert_group_count", 0},
    {"expert_shared_count", 0},
    {"expert_weights_norm", 1},
    {"expert_weights_scale", 1},
    {"final_logit_softcapping", 0},
    {"leading_dense_block_count", 0},
    {"logit_scale", 1},
    {"nextn_predict_layers", 0},
    {"residual_scale", 1},
    {"rope.scale_linear", 1},
    {"rope.scaling.attn_factor", 1},
    {"rope.scaling.yarn_attn_factor", 1},
    {"rope.scaling.yarn_log_multiplier", 0},
    {"router_logit_softcapping", 0},
    {"use_parallel_residual", 0}};

// The same of keys whose value another key decides; nothing of other keys.
std::optional<double> one_value(std::string_view key, double found, const HyperParameters& hyper) {
  const bool mixtures = hyper.architecture.mixtures, yarn = hyper.yarn_context > 0;
  for (const auto& [name, value] : kOneValue)
    if (name == key) return value;
  for (const char* name :
       {"rope.dimension_count", "rope.dimension_count_swa", "attention.value_length",
        "attention.key_length_swa", "attention.value_length_swa"}) {
    if (name == key) return static_cast<double>(hyper.head_size);
  }
  if (key == "expert_count") return 0;  // with mixtures it is one of kKeys
  // What becomes of a router's logits: a softmax, whose largest probabilities sum to 1 again. A
  // softmax of the largest logits is the same (3).
  if (key == "expert_gating_func") return !mixtures || found == 3 ? found : 1;
  if (key == "rope.scaling.yarn_ext_factor") return yarn ? 1 : 0;
  if (key == "rope.scaling.yarn_beta_fast") return yarn ? Scaling::kFastTurns : found;
  if (key == "rope.scaling.yarn_beta_slow") return yarn ? Scaling::kSlowTurns : found;
  return std::nullopt;
}

// Every key behind the architecture's name is read, or changes nothing, or has the one value that
// this program can do: no key is overlooked that would change the result.
void check_others(const Metadata& metadata, HyperParameters& hyper) {
  const std::string& where = metadata.file();
  const std::string prefix = hyper.architecture.name + std::string(".");
  check_scaling(metadata, prefix + "rope.scaling.", hyper);
  for (const std::string& name : metadata.keys()) {
    if (!name.starts_with(prefix)) continue;
    const std::string key = name.substr(prefix.size());
    const bool read = std::any_of(std::begin(kKeys), std::end(kKeys), [&](const Key& each) {
      return each.gguf == key && each.belongs_to(hyper.architecture);
    });
    if (key == "rope.freq_base_swa" && !hyper.architecture.local_rotation &&
        metadata.number(name) != hyper.rotation_base) {
      fail(where, name + ": expected that of all layers, " + std::to_string(hyper.rotation_base) +
                      ", found " + std::to_string(metadata.number(name)));
    }
    if (key == "attention.sliding_window" && hyper.local_period == 0 &&
        hyper.window < hyper.context) {
      fail(where, name + ": expected none, because all layers attend to all positions, found " +
                      std::to_string(hyper.window));
    }
    if (read || is_harmless(key)) continue;
    const bool is_number = metadata.is_number(name);
    const double found = is_number ? metadata.number(name) : 0;
    const std::optional<double> wanted = one_value(key, found, hyper);
    if (!wanted) fail(where, name + ": this program does not know what it means");
    if (!is_number || found != *wanted) {
      fail(where, name + ": expected " + (*wanted == 0 ? "none" : text_of(*wanted)) + ", found " +
                      (is_number ? text_of(found) : "no number"));
    }
  }
}

// The same of config.json.
void check_others(const std::string& path, const nlohmann::json& config, HyperParameters& hyper) {
  if (config.contains("rope_scaling") && !config["rope_scaling"].is_null())
    fail(path, "positions are scaled (rope_scaling), which this program does not do");
  const auto expect = [&](const char* key, const nlohmann::json& wanted,
                          const nlohmann::json& by_default) {
    const bool there = config.contains(key) && !config[key].is_null();
    const nlohmann::json& found = there ? config[key] : by_default;
    if (found != wanted)
      fail(path, std::string(key) + ": expected " + wanted.dump() + ", found " + found.dump());
  };
  expect("hidden_act", "silu", "silu");
  expect("partial_rotary_factor", 1, 1);
  expect("use_sliding_window", false, false);
  // Newer files have the base of the rotation in an object of its own.
  if (const auto rotation = config.find("rope_parameters");
      rotation != config.end() && rotation->is_object()) {
    const std::string name = "rope_parameters.";
    if (const auto type = rotation->value("rope_type", nlohmann::json("default"));
        type != "default")
      fail(path, name + "rope_type: expected \"default\", found " + type.dump());
    if (const auto base = rotation->find("rope_theta");
        base != rotation->end() && base->is_number())
      set(path, kRotationBase, name + "rope_theta", base->get<double>(), hyper);
  }
  if (!hyper.architecture.mixtures) return;
  expect("norm_topk_prob", true, false);
  expect("decoder_sparse_step", 1, 1);
  expect("mlp_only_layers", nlohmann::json::array(), nlohmann::json::array());
}

// Hyper-parameters of which nothing but the architecture is known.
HyperParameters of_architecture(const Architecture& architecture) {
  HyperParameters hyper;
  hyper.architecture = architecture;
  hyper.local_period = architecture.local_period;
  return hyper;
}

}  // namespace

HyperParameters hyper_parameters(const Metadata& metadata) {
  const std::string architecture = metadata.text("general.architecture");
  HyperParameters hyper = of_architecture(find_architecture(metadata.file(), architecture, false));
  for (const Key& key : kKeys) {
    const std::string name = architecture + "." + key.gguf;
    if (key.belongs_to(hyper.architecture) && (key.required || metadata.has(name)))
      set(metadata.file(), key, name, metadata.number(name), hyper);
  }
  complete(metadata.file(), hyper);
  check_others(metadata, hyper);
  return hyper;
}

bool read_config(const std::string& folder, HyperParameters& hyper) {
  const std::string path = (std::filesystem::path(folder) / "config.json").string();
  std::ifstream in(path);
  const auto config = nlohmann::json::parse(in, nullptr, false);
  if (!config.is_object() || !config.contains("hidden_size")) return false;
  const auto& type = config.contains("model_type") ? config["model_type"] : nlohmann::json("");
  const std::string name = type.is_string() ? type.get<std::string>() : type.dump();
  hyper = of_architecture(find_architecture(path, name, true));
  for (const Key& key : kKeys) {
    if (!key.config || !key.belongs_to(hyper.architecture)) continue;
    const auto found = config.find(key.config);
    if (found != config.end() && found->is_number())
      set(path, key, key.config, found->get<double>(), hyper);
    else if (key.required)
      fail(path, std::string("has no number '") + key.config + "'");
  }
  complete(path, hyper);
  check_others(path, config, hyper);
  return true;
}

}  // namespace llm
