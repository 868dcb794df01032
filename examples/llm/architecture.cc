#include "architecture.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace llm {

// GGUF's converter reorders the rows of llama's q and k so that pairs are neighbors.
const TensorNames kGgufNames = {"token_embd", "output_norm", "output",   "blk.",        "attn_norm",
                                "attn_q",     "attn_k",      "attn_v",   "attn_output", "ffn_norm",
                                "ffn_gate",   "ffn_up",      "ffn_down", false};
const TensorNames kHuggingFaceNames = {"model.embed_tokens",
                                       "model.norm",
                                       "lm_head",
                                       "model.layers.",
                                       "input_layernorm",
                                       "self_attn.q_proj",
                                       "self_attn.k_proj",
                                       "self_attn.v_proj",
                                       "self_attn.o_proj",
                                       "post_attention_layernorm",
                                       "mlp.gate_proj",
                                       "mlp.up_proj",
                                       "mlp.down_proj",
                                       true};

namespace {

// By general.architecture of a GGUF and model_type of config.json.
constexpr const char* kArchitectures[] = {"llama"};

// One hyper-parameter: its key in a GGUF behind the architecture's name, and in config.json.
struct Key {
  const char *gguf, *config;
  int64_t HyperParameters::* whole;
  double HyperParameters::* real;
  bool required;
};
constexpr Key kKeys[] = {
    {"block_count", "num_hidden_layers", &HyperParameters::layers, nullptr, true},
    {"embedding_length", "hidden_size", &HyperParameters::width, nullptr, true},
    {"feed_forward_length", "intermediate_size", &HyperParameters::feed_forward, nullptr, true},
    {"attention.head_count", "num_attention_heads", &HyperParameters::heads, nullptr, true},
    {"attention.head_count_kv", "num_key_value_heads", &HyperParameters::key_value_heads, nullptr,
     false},
    {"attention.key_length", "head_dim", &HyperParameters::head_size, nullptr, false},
    {"context_length", "max_position_embeddings", &HyperParameters::context, nullptr, true},
    {"rope.freq_base", "rope_theta", nullptr, &HyperParameters::rotation_base, false},
    {"attention.layer_norm_rms_epsilon", "rms_norm_eps", nullptr, &HyperParameters::norm_epsilon,
     true},
};

[[noreturn]] void fail(const std::string& where, const std::string& what) {
  throw std::runtime_error(where + ": " + what);
}

void check_architecture(const std::string& where, const std::string& found) {
  if (std::find(std::begin(kArchitectures), std::end(kArchitectures), found) !=
      std::end(kArchitectures))
    return;
  std::string known;
  for (const char* name : kArchitectures) known += std::string(known.empty() ? "" : ", ") + name;
  fail(where,
       "expected one of the architectures that are known (" + known + "), found '" + found + "'");
}

void set(const std::string& where, const Key& key, double value, HyperParameters& hyper) {
  constexpr double kMost = 1 << 24;  // far above any model, and products of two still fit
  const bool in_range = key.whole ? value >= 1 && value <= kMost && value == std::trunc(value)
                                  : value > 0 && value < 1e12;
  if (!in_range) {
    fail(where, std::string(key.config) + ": " + std::to_string(value) + " is out of range");
  }
  if (key.whole)
    hyper.*key.whole = static_cast<int64_t>(value);
  else
    hyper.*key.real = value;
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
}

}  // namespace

HyperParameters hyper_parameters(const Metadata& metadata) {
  const std::string& where = metadata.file();
  const std::string& architecture = metadata.text("general.architecture");
  check_architecture(where, architecture);
  HyperParameters hyper;
  for (const Key& key : kKeys) {
    const std::string name = architecture + "." + key.gguf;
    if (key.required || metadata.has(name)) set(where, key, metadata.number(name), hyper);
  }
  complete(where, hyper);
  const std::string rope = architecture + ".rope.";
  if (metadata.has(rope + "scaling.type") && metadata.text(rope + "scaling.type") != "none") {
    fail(where, "positions are scaled (" + rope + "scaling.type), which this program does not do");
  }
  if (metadata.has(rope + "dimension_count") &&
      metadata.number(rope + "dimension_count") != static_cast<double>(hyper.head_size)) {
    fail(where,
         rope + "dimension_count: expected the size of a head, " + std::to_string(hyper.head_size));
  }
  return hyper;
}

bool read_config(const std::string& folder, HyperParameters& hyper) {
  const std::string path = (std::filesystem::path(folder) / "config.json").string();
  std::ifstream in(path);
  const auto config = nlohmann::json::parse(in, nullptr, false);
  if (!config.is_object() || !config.contains("hidden_size")) return false;
  const auto& type = config.contains("model_type") ? config["model_type"] : nlohmann::json("");
  check_architecture(path, type.is_string() ? type.get<std::string>() : type.dump());
  hyper = {};
  for (const Key& key : kKeys) {
    const auto found = config.find(key.config);
    if (found != config.end() && found->is_number())
      set(path, key, found->get<double>(), hyper);
    else if (key.required)
      fail(path, std::string("has no number '") + key.config + "'");
  }
  complete(path, hyper);
  if (config.contains("rope_scaling") && !config["rope_scaling"].is_null()) {
    fail(path, "positions are scaled (rope_scaling), which this program does not do");
  }
  return true;
}

}  // namespace llm
