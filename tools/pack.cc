// pack: writes packed containers (.marlin), whole or one for each rank of a sharded model.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

#include "command.h"
#include "joins.h"
#include "library.h"
#include "output_file.h"
#include "printable.h"
#include "quantize_options.h"

namespace metal_marlin::tools {
namespace pack_command {
namespace {

struct Options {
  std::string path, output, backend = "cpu";
  std::vector<std::string> joins;
  QuantizeOptions quantize;
  uint32_t ranks = 1, threads = 0;
  bool force = false;
};

bool is_one_of(std::string_view role, std::initializer_list<std::string_view> roles) {
  return std::find(roles.begin(), roles.end(), role) != roles.end();
}
/// Layers whose input is what other ranks compute parts of: their columns are split.
bool splits_columns(std::string_view role) {
  return is_one_of(role, {"attn_output", "ffn_down", "o_proj", "down_proj", "w2"});
}
/// Layers that every rank has whole: they choose experts.
bool is_router(std::string_view role) {
  return is_one_of(role, {"ffn_gate_inp", "router", "gate"});
}
/// Layers whose rows or columns are heads of attention.
bool has_heads(std::string_view role) {
  return is_one_of(
      role, {"attn_q", "attn_k", "attn_v", "attn_output", "q_proj", "k_proj", "v_proj", "o_proj"});
}

/// The number of heads of keys and values, as a GGUF or config.json gives it; 0: unknown.
int64_t key_value_heads(const marlin_checkpoint* checkpoint) {
  auto value = make<marlin_value>();
  const auto number = [&](const std::string& key) -> int64_t {
    const bool found =
        marlin_checkpoint_value(checkpoint, key.c_str(), &value, nullptr) == MARLIN_OK;
    return found ? static_cast<int64_t>(value.u64) : 0;
  };
  if (marlin_checkpoint_value(checkpoint, "general.architecture", &value, nullptr) == MARLIN_OK) {
    const std::string name(static_cast<const char*>(value.data), value.bytes);
    const int64_t own = number(name + ".attention.head_count_kv");
    return own != 0 ? own : number(name + ".attention.head_count");
  }
  const int64_t own = number("num_key_value_heads");
  return own != 0 ? own : number("num_attention_heads");
}

/// The share of one rank of `size` elements that are cut at multiples of `unit`.
std::pair<int64_t, int64_t> share_of(int64_t size, int64_t unit, uint32_t rank, uint32_t ranks) {
  const int64_t units = size / unit;
  const auto border = [&](int64_t r) { return r == ranks ? size : units * r / ranks * unit; };
  return {border(rank), border(int64_t{rank} + 1) - border(rank)};
}

/// The length at which `size` elements may be cut into as many parts as there are ranks.
int64_t unit_of(const marlin_layer_info& layer, size_t axis, int64_t heads, uint32_t ranks) {
  const int64_t size = axis == 0 ? layer.n : layer.k;
  const auto serves = [&](int64_t unit) { return size % unit == 0 && size / unit >= ranks; };
  if (has_heads(role_of(layer.name)) && heads >= ranks && size % heads == 0) return size / heads;
  for (const int64_t unit : {256, 128, 64, 32})
    if (serves(unit)) return unit;
  if (axis == 0 && serves(1)) return 1;
  throw Failure(
      fmt::format("--ranks {}: layer '{}' [{}, {}] cannot be cut into {} parts at multiples of 32",
                  ranks, layer.name, layer.n, layer.k, ranks));
}

class Loads {
 public:
  Loads(const marlin_context* context, const marlin_checkpoint* checkpoint, const Options& options)
      : context_(const_cast<marlin_context*>(context)), checkpoint_(checkpoint), options_(options) {
    for (const marlin_layer_info& layer : layers_of(checkpoint)) {
      const std::string why = why_not(context_, checkpoint, layer);
      why.empty() ? layers_.push_back(layer) : say_refused(layer.name, why);
    }
    if (layers_.empty()) throw Failure(fmt::format("{} has no layer to pack", options.path));
    groups_ = join(
        layers_.size(), [&](size_t i) { return layers_[i].name; }, join_lists(options.joins),
        [&](const std::vector<size_t>& members) { return fit(members); });
  }

  /// The file of one rank.
  void save(uint32_t rank, const std::string& path) {
    const int64_t heads = key_value_heads(checkpoint_);
    std::vector<std::vector<const char*>> names(groups_.size());
    std::vector<std::vector<marlin_shard>> shards(groups_.size());
    std::vector<marlin_load_desc> loads;
    for (size_t g = 0; g < groups_.size(); ++g) {
      for (const size_t i : groups_[g]) {
        names[g].push_back(layers_[i].name);
        shards[g].push_back(shard(layers_[i], heads, rank));
      }
      auto load = make<marlin_load_desc>();
      load.layers = names[g].data();
      load.shards = shards[g].data();
      load.layer_count = static_cast<uint32_t>(names[g].size());
      const Quantize to = options_.quantize.get();
      if (layers_[groups_[g][0]].format == MARLIN_FORMAT_NONE) load.format = to.format;
      load.group_size = to.group;
      loads.push_back(load);
    }
    const auto each = addresses(loads);
    auto desc = make<marlin_save_desc>();
    desc.flags = options_.force ? MARLIN_SAVE_OVERWRITE : 0;
    desc.loads = each.data();
    desc.load_count = static_cast<uint32_t>(each.size());
    desc.rank = rank;
    desc.rank_count = options_.ranks;
    desc.backend = known(parse_backend(options_.backend));
    std::pair left(layers_.size(), groups_.size());
    desc.refused = [](void* user, const marlin_load_desc* load, const marlin_error* why) {
      auto& [layers, entries] = *static_cast<decltype(left)*>(user);
      layers -= load->layer_count, --entries;
      for (uint32_t i = 0; i < load->layer_count; ++i) say_refused(load->layers[i], why->message);
    };
    desc.user = &left;
    auto error = make<marlin_error>();
    check(marlin_checkpoint_save(context_, checkpoint_, path.c_str(), &desc, &error), error,
          "packing " + options_.path);
    fmt::print("{}: {} layers in {} entries\n", printable(path), left.first, left.second);
  }

 private:
  static void say_refused(const char* layer, const std::string& why) {
    fmt::print(stderr, "metal-marlin: '{}' stays as it is: {}\n", printable(layer), printable(why));
  }

  /// The shard of a rank: of a stack of experts some experts, of other layers rows or columns.
  marlin_shard shard(const marlin_layer_info& layer, int64_t heads, uint32_t rank) const {
    marlin_shard part{};
    if (options_.ranks == 1 || is_router(role_of(layer.name))) return part;
    size_t axis = splits_columns(role_of(layer.name)) ? 1 : 0;
    if (layer.experts >= options_.ranks) axis = 2;
    const int64_t sizes[] = {layer.n, layer.k, layer.experts};
    const int64_t unit = axis == 2 ? 1 : unit_of(layer, axis, heads, options_.ranks);
    std::tie(part.first[axis], part.count[axis]) =
        share_of(sizes[axis], unit, rank, options_.ranks);
    return part;
  }

  /// Layers of one format become one matrix.
  bool fit(const std::vector<size_t>& members) const {
    return std::all_of(members.begin(), members.end(), [&](size_t i) {
      const marlin_layer_info &a = layers_[members[0]], &b = layers_[i];
      return a.format == b.format && a.group_size == b.group_size && a.flags == b.flags &&
             a.dtype == b.dtype && a.layout == b.layout && a.k == b.k && a.experts == b.experts;
    });
  }

  marlin_context* context_;
  const marlin_checkpoint* checkpoint_;
  const Options& options_;
  std::vector<marlin_layer_info> layers_;
  std::vector<std::vector<size_t>> groups_;
};

/// model.marlin of rank 0 of 2 is model-00001-of-00002.marlin.
std::string file_of(const Options& options, uint32_t rank) {
  if (options.ranks == 1) return options.output;
  constexpr std::string_view kEnding = ".marlin";
  std::string stem = options.output;
  if (stem.ends_with(kEnding)) stem.resize(stem.size() - kEnding.size());
  return fmt::format("{}-{:05}-of-{:05}.marlin", stem, rank + 1, options.ranks);
}

ExitCode run(const Options& options) {
  check_output_name(options.output);
  // Of the files of several ranks, all are there or none.
  for (uint32_t rank = 0; options.ranks > 1 && !options.force && rank < options.ranks; ++rank) {
    const std::string path = file_of(options, rank);
    if (std::error_code none;
        std::filesystem::symlink_status(path, none).type() != std::filesystem::file_type::not_found)
      throw Failure(fmt::format("{} is there already (--force replaces it)", path));
  }
  const Checkpoint checkpoint = open_checkpoint(options.path);
  const Context context = make_context({.backend = MARLIN_BACKEND_CPU, .threads = options.threads});
  Loads loads(context.get(), checkpoint.get(), options);
  for (uint32_t rank = 0; rank < options.ranks; ++rank) loads.save(rank, file_of(options, rank));
  return ExitCode::ok;
}

}  // namespace
}  // namespace pack_command

void add_pack(CLI::App& app, Action& action) {
  using namespace pack_command;
  auto* sub = app.add_subcommand(
      "pack", "Write packed layers to a .marlin file, which a device maps and uses in place");
  auto options = std::make_shared<Options>();
  sub->add_option("FILE", options->path, kCheckpointFile)->required();
  add_output(*sub, options->output);
  sub->add_option("--ranks", options->ranks,
                  "Write one file for each of so many shards: OUT-00001-of-0000N.marlin")
      ->check(in_range(1u, 1024u));
  sub->add_option("--backend", options->backend, "Whose layout; no such device is needed")
      ->capture_default_str()
      ->check(CLI::IsMember({"cpu", "metal", "cuda"}));
  sub->add_option("--join", options->joins,
                  "Pack layers as one that are loaded as one: their last names with + between")
      ->delimiter(',');
  sub->add_option("--threads", options->threads, "0: as many as the process may use")
      ->check(in_range(0u, 1024u));
  options->quantize.add_to(*sub);
  add_force(*sub, options->force);
  sub->footer(
      "The file holds each layer as the backend packs it, and all other tensors and key-values of "
      "FILE. marlin_weights_load\n"
      "of one of its layers packs nothing, and copies nothing but to the memory of an NVIDIA GPU. "
      "Layers that a program\nloads together have to be packed together.\n"
      "With --ranks, attn_output, o_proj, ffn_down, down_proj and w2 are cut along K, stacks of "
      "experts into experts,\n"
      "and all other layers along N. Attention is cut between heads of keys and values, and the "
      "rest at multiples of 256,\n"
      "or of 128, 64 or 32 where a layer is small.\n\n"
      "Examples:\n"
      "  metal-marlin pack model.gguf -o model.marlin\n"
      "  metal-marlin pack model.gguf -o model.marlin --join attn_q+attn_k+attn_v,ffn_gate+ffn_up\n"
      "  metal-marlin pack model.gguf -o model.marlin --backend metal\n"
      "  metal-marlin pack DIR -o model.marlin --ranks 2");
  sub->callback([&action, options] { action = [options] { return run(*options); }; });
}

}  // namespace metal_marlin::tools
