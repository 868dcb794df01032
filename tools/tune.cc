// tune: measures which kernels are fastest on this machine, and keeps that in the device's profile.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "command.h"
#include "library.h"
#include "names.h"
#include "notes.h"
#include "profile.h"
#include "progress.h"
#include "quantize_options.h"
#include "shape_options.h"
#include "table.h"
#include "tuned.h"
#include "workload.h"

namespace metal_marlin::tools {
namespace tune_command {
namespace {

struct Options {
  std::string file, backend = "auto", compute = "default", dtype = "bf16";
  std::vector<std::string> formats;
  int64_t n = 11776, k = 4096, max_m = 512, experts = 0, top_k = 0;
  uint32_t group = 0, threads = 0;
  double seconds = 20;
  bool dry_run = false, reset = false;
};

/// Weights of one shape and format, which are used in turn so that caches do not keep them.
struct Group {
  std::string name;
  std::vector<Weights> weights;
  std::vector<TunedProduct> products;  ///< of these weights, each of its own classes
};
/// No group has more, and none needs more bytes. Smaller weights stay in caches.
constexpr size_t kMostInTurn = 16;
constexpr uint64_t kColdBytes = 256 << 20;

/// Whether these weights are measured as a mixture of experts.
bool is_mixture(const Options& options, const marlin_layer_info& info) {
  return options.top_k != 0 && info.experts > 1;
}

/// A mixture is a product of a token's row of A by each of its experts (gate and up), and one whose
/// results are added up (down).
std::vector<TunedProduct> products_of(const Options& options, const marlin_layer_info& info) {
  const TunedProduct plain = {known(parse_activation_dtype(options.dtype)),
                              known(parse_compute(options.compute))};
  if (!is_mixture(options, info)) return {plain};
  TunedProduct routed = plain;
  routed.top_k = options.top_k;
  TunedProduct summed = routed;
  summed.summed = true;
  return {routed, summed};
}

void complete(const Options& options, Group& group) {
  const marlin_layer_info info = info_of(group.weights.front().get());
  group.products = products_of(options, info);
  group.name = fmt::format("{} {} x {}, group {}", format_name(info.format), info.n, info.k,
                           info.group_size);
  if (is_mixture(options, info))
    group.name += fmt::format(", {} of {} experts", options.top_k, info.experts);
}

std::string name_of(const Group& group, const TunedProduct& product) {
  return group.name + (product.summed ? ", summed" : "");
}

/// What layers of a file have in common that one group serves.
using Kind = std::tuple<marlin_format, int64_t, int64_t, uint32_t, uint32_t, uint32_t>;
Kind kind_of(const Options& options, const marlin_layer_info& layer) {
  return {layer.format,     layer.n,     layer.k,
          layer.group_size, layer.flags, is_mixture(options, layer) ? layer.experts : 0};
}

marlin_format format_of_floats(const Options& options) {
  return options.formats.empty() ? MARLIN_FORMAT_NONE
                                 : known(parse_format(options.formats.front()));
}

/// The layers to tune for, by kind.
std::map<Kind, std::vector<marlin_layer_info>> layers_by_kind(const Options& options,
                                                              const marlin_checkpoint* checkpoint) {
  std::map<Kind, std::vector<marlin_layer_info>> kinds;
  std::map<Kind, uint64_t> bytes;
  for (const marlin_layer_info& layer : layers_of(checkpoint)) {
    const bool floats = layer.format == MARLIN_FORMAT_NONE;
    if (layer.status != MARLIN_OK || (floats && format_of_floats(options) == MARLIN_FORMAT_NONE))
      continue;
    const bool mixture = is_mixture(options, layer);
    if (mixture && options.top_k > layer.experts)
      throw Failure(fmt::format("--top-k {}: expected at most the {} experts of '{}'",
                                options.top_k, layer.experts, layer.name),
                    ExitCode::usage);
    auto& alike = kinds[kind_of(options, layer)];
    uint64_t& size = bytes[kind_of(options, layer)];
    if (alike.size() == kMostInTurn || size >= kColdBytes) continue;
    alike.push_back(layer);
    size += layer.bytes / (mixture ? 1 : std::max(layer.experts, 1u));
  }
  if (kinds.empty())
    throw Failure(options.file + " has no quantized layers; --format quantizes layers of floats");
  return kinds;
}

/// Of layers of experts, one expert, or all of a mixture.
std::vector<Group> groups_of_file(const Options& options, marlin_context* context) {
  const Checkpoint checkpoint = open_checkpoint(options.file);
  size_t unread = 0;
  for_each_layer(checkpoint.get(),
                 [&](const marlin_layer_info& layer) { unread += layer.status != MARLIN_OK; });
  note_left_out(unread);
  const Quantize quantize{format_of_floats(options), options.group};
  std::vector<Group> all;
  for (const auto& [kind, layers] : layers_by_kind(options, checkpoint.get())) {
    Group& group = all.emplace_back();
    for (const marlin_layer_info& layer : layers)
      group.weights.push_back(load(context, checkpoint.get(), layer,
                                   is_mixture(options, layer) ? kAllExperts : 0, quantize));
    complete(options, group);
  }
  return all;
}

std::vector<Group> groups_of_shape(const Options& options, marlin_context* context) {
  std::vector<marlin_format> formats;
  formats.reserve(options.formats.size());
  for (const std::string& name : options.formats) formats.push_back(known(parse_format(name)));
  if (formats.empty()) formats.push_back(MARLIN_INT4);
  std::vector<Group> all;
  for (const marlin_format format : formats) {
    const RandomWeights random({.format = format,
                                .n = options.n,
                                .k = options.k,
                                .group = options.group,
                                .experts = std::max<int64_t>(options.experts, 1)},
                               1);
    Group& group = all.emplace_back();
    uint64_t bytes = 0;
    while (group.weights.size() < kMostInTurn && bytes < kColdBytes) {
      group.weights.push_back(random.pack(context));
      bytes += info_of(group.weights.back().get()).bytes;
    }
    complete(options, group);
  }
  return all;
}

std::vector<Group> groups_of(const Options& options, marlin_context* context) {
  return options.file.empty() ? groups_of_shape(options, context)
                              : groups_of_file(options, context);
}

/// How many products of groups there will be at most.
size_t count_products(const Options& options) {
  const size_t of_group = options.top_k != 0 ? 2 : 1;
  if (options.file.empty()) return of_group * std::max<size_t>(options.formats.size(), 1);
  return of_group * layers_by_kind(options, open_checkpoint(options.file).get()).size();
}

struct Counts {
  int measured = 0, changed = 0, left = 0;
  bool by_expert = false;  ///< an expert of a mixture is a plain product here
};

void add_rows(const Options& options, const Group& group, const TunedProduct& product, Table& table,
              Counts& counts) {
  const std::string name = name_of(group, product);
  for (const int64_t m : rows_of_classes(options.max_m)) {
    const std::string text = explain(product_without_data(group.weights.front().get(), m, product));
    counts.by_expert = counts.by_expert || !explained(text, "rows_an_expert").empty();
    const std::string rows = fmt::format("{}", m);
    const std::optional<Tuned> result = tuned(text);
    if (!result) {
      ++counts.left;
      table.row({name, rows, explained(text, "kernel"), "-", "not measured", "-", "-"});
      continue;
    }
    ++counts.measured;
    std::string chosen = "the same";
    if (result->changed()) {
      ++counts.changed;
      chosen =
          result->kernel == result->usual_kernel ? "k_splits: " + result->k_splits : result->kernel;
    }
    table.row({name, rows, result->usual_kernel, fmt::format("{:.1f}", result->usual_ns / 1e3),
               chosen, fmt::format("{:.1f}", result->ns / 1e3),
               fmt::format("{:.2f}", result->usual_ns / result->ns)});
  }
}

/// Removes the profile of the device, if there is one.
void reset(marlin_backend backend) {
  const std::string path = profile_of(make_context({.backend = backend}).get()).path;
  if (path.empty())
    throw Failure("no profile is kept: METAL_MARLIN_PROFILE is off, or HOME is not set");
  const bool removed = std::remove(path.c_str()) == 0;
  fmt::print("{} {}\n", removed ? "removed" : "there is no", path);
}

void check_experts(const Options& options) {
  if (options.file.empty() && options.top_k > options.experts)
    throw Failure(fmt::format("--top-k {}: expected at most the {} of --experts", options.top_k,
                              options.experts),
                  ExitCode::usage);
}

ExitCode run(const Options& options) {
  check_experts(options);
  const marlin_backend backend = known(parse_backend(options.backend));
  if (options.reset) {
    reset(backend);
    return ExitCode::ok;
  }
  std::vector<std::string> messages;
  const auto share =
      static_cast<uint32_t>(options.seconds * 1e3 / static_cast<double>(count_products(options)));
  const Context context = make_context({.backend = backend,
                                        .threads = options.threads,
                                        .tune_ms = std::max(share, 1u),
                                        .without_profile = options.dry_run,
                                        .messages = &messages});
  const std::vector<Group> groups = groups_of(options, context.get());
  Table table({{"product"},
               {"M", Table::Align::right},
               {"usual kernel"},
               {"us", Table::Align::right},
               {"now"},
               {"us", Table::Align::right},
               {"ratio", Table::Align::right}});
  Counts counts;
  {
    Progress progress("measuring", static_cast<double>(groups.size()));
    double done = 0;
    for (const Group& group : groups) {
      progress.at(done++, group.name);
      for (const TunedProduct& product : group.products) {
        if (product.summed && counts.by_expert) continue;  // the same plain products
        tune(group.weights, options.max_m, product);
        add_rows(options, group, product, table, counts);
      }
    }
  }
  table.print();
  fmt::print("\n{} products measured, {} of them take another kernel or other parts of K",
             counts.measured, counts.changed);
  if (counts.left != 0) fmt::print("; {} not measured: give more --seconds", counts.left);
  if (counts.by_expert)
    fmt::print(
        "\nOn this backend an expert is a plain product of its rows: times are of one expert "
        "when tokens are spread evenly.");
  const ProfileInfo profile = profile_of(context.get());
  fmt::print("\n{}\n", profile.path.empty() ? "nothing was written"
                                            : fmt::format("profile: {}, {} products", profile.path,
                                                          profile.products));
  for (const std::string& message : messages) fmt::print(stderr, "{}\n", message);
  return ExitCode::ok;
}

/// A file, or a shape.
void add_weights(CLI::App* sub, const std::shared_ptr<Options>& options) {
  const auto sizes = in_range(int64_t{1}, int64_t{1} << 24);
  auto* file = sub->add_option("FILE", options->file, "Tune for the layers of this checkpoint")
                   ->type_name(kFile);
  sub->add_option("-n,--n", options->n, "Rows of the weights (out features)")
      ->capture_default_str()
      ->check(sizes)
      ->excludes(file);
  sub->add_option("-k,--k", options->k, "Columns of the weights (in features)")
      ->capture_default_str()
      ->check(sizes)
      ->excludes(file);
  sub->add_option("--format", options->formats,
                  "Formats of a shape, a list (default: int4); or of layers of floats")
      ->delimiter(',')
      ->check(format_names());
  sub->add_option("--group", options->group,
                  "Weights that share a scale; default: the format's own, 32 (nvfp4: 16)");
  sub->add_option("--experts", options->experts,
                  "Tune for a mixture of so many experts of N x K each, of which every token has "
                  "--top-k (default: 1)")
      ->check(in_range(1, 1024))
      ->excludes(file);
  sub->add_option("--top-k", options->top_k,
                  "Experts of a token; with FILE, layers of experts are tuned as mixtures, and "
                  "without this option as plain products of one expert")
      ->check(in_range(1, 1024));
}

}  // namespace
}  // namespace tune_command

void add_tune(CLI::App& app, Action& action) {
  using namespace tune_command;
  auto* sub = app.add_subcommand(
      "tune", "Measure which kernels are fastest on this machine, and use them from now on");
  auto options = std::make_shared<Options>();
  add_weights(sub, options);
  sub->add_option("-m", options->max_m, "The most rows of activations (of a mixture: tokens)")
      ->capture_default_str()
      ->check(in_range(int64_t{1}, int64_t{4096}));
  sub->add_option("--backend", options->backend,
                  "Where products run; auto: the first usable of cuda, metal, cpu")
      ->capture_default_str()
      ->check(backend_names());
  sub->add_option("--compute", options->compute, "default or int8")
      ->capture_default_str()
      ->check(compute_names());
  sub->add_option("--dtype", options->dtype, "Of the activations")
      ->capture_default_str()
      ->check(dtype_names());
  sub->add_option("--threads", options->threads,
                  "Threads of the CPU; default: all that this process may use")
      ->check(in_range(1, 1024));
  sub->add_option("--seconds", options->seconds, "How long to measure at most, in all")
      ->capture_default_str()
      ->check(in_range(0.01, 3600.0));
  auto* dry =
      sub->add_flag("--dry-run", options->dry_run, "Measure everything anew, and write nothing");
  sub->add_flag("--reset", options->reset, "Only forget what was measured: remove the profile")
      ->excludes(dry);
  sub->footer(
      "Products that the profile has already are shown, and not measured again.\n\n"
      "Examples:\n"
      "  metal-marlin tune model.gguf --seconds 30\n"
      "  metal-marlin tune -n 4096 -k 4096 --format mxfp4,int4 -m 64\n"
      "  metal-marlin tune mixture.gguf --top-k 8\n"
      "  metal-marlin tune -n 2880 -k 2880 --format mxfp4 --experts 128 --top-k 4\n"
      "  metal-marlin tune --backend cpu --dry-run\n"
      "  metal-marlin tune --reset");
  sub->callback([&action, options] {
    if (options->experts != 0 && options->top_k == 0) options->top_k = 1;
    action = [options] { return run(*options); };
  });
}

}  // namespace metal_marlin::tools
