// quantize: writes a copy of a checkpoint of floats (or of other codes) in 4 bits.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "command.h"
#include "file_tensors.h"
#include "input_files.h"
#include "library.h"
#include "machine_limits.h"
#include "names.h"
#include "norms.h"
#include "quantize_host.h"
#include "quantize_options.h"
#include "quantize_report.h"
#include "recipes.h"
#include "wildcards.h"
#include "words.h"

namespace metal_marlin::tools {
namespace quantize_command {
namespace {

/// The layers that recipes skip, because quantizing them costs much and saves little: embeddings,
/// the output head, routers of experts. Vectors (norms, biases) are not layers.
constexpr const char* kDefaultExcludes[] = {"*embed*", "*embd*",    "*wte",
                                            "*wpe",    "*lm_head*", "output.weight",
                                            "*.gate",  "*.router",  "*ffn_gate_inp*"};

/// What recipes leave alone; they have types for embeddings and the output.
constexpr const char* kRecipeExcludes[] = {
    "*.gate",      "*.router", "*ffn_gate_inp*", "*wpe", "*position_embd*", "*position_embeddings*",
    "*token_type*"};

struct Options {
  std::string input, output, format, recipe, scheme = "auto", scales = "absmax", sparse, norms;
  uint32_t group = 0, threads = 0;
  uint64_t shard_bytes = 0;
  std::vector<std::string> include, exclude;
  /// Without one of these, layers that are quantized already change their layout and no value.
  bool quantizes() const { return !format.empty() || !recipe.empty(); }
  bool asymmetric = false, requantize = false, skip_unfit = false, force = false, dry_run = false,
       json = false;
};

bool matches(const std::vector<std::string>& patterns, const std::string& name) {
  return std::any_of(patterns.begin(), patterns.end(), [&](const std::string& pattern) {
    return fits(pattern.c_str(), name.c_str());
  });
}

/// What --format takes: formats that every scheme may have, and types of GGUF's blocks.
std::string quantized_types() {
  std::string names;
  for (const marlin_format format : quantize_formats()) names += format_name(format) + ", ";
  return names + fmt::format("{}", fmt::join(block_types(), ", "));
}

std::optional<WeightType> parse_quantized_type(std::string_view name) {
  const auto type = parse_weight_type(name);
  const auto formats = quantize_formats();
  const bool is_one = type && (type->block != nullptr ||
                               std::count(formats.begin(), formats.end(), type->format) != 0);
  return is_one ? type : std::nullopt;
}

std::vector<std::string> excludes_of(const Options& options) {
  if (!options.quantizes()) return {};
  if (options.recipe.empty()) return {std::begin(kDefaultExcludes), std::end(kDefaultExcludes)};
  return {std::begin(kRecipeExcludes), std::end(kRecipeExcludes)};
}

/// Whether the options select this name.
bool is_meant(const Options& options, const std::string& name) {
  const bool in = options.include.empty() ? !matches(excludes_of(options), name)
                                          : matches(options.include, name);
  return in && !matches(options.exclude, name);
}

struct Choice {
  std::vector<const char*> names;
  std::vector<const char*> types;         ///< of blocks, one a name; or empty
  size_t quantized_already = 0;           ///< selected, but not chosen
  std::vector<marlin_layer_info> unread;  ///< selected, but they do not load
  Untouched untouched;
};

/// The type of blocks of each layer of the checkpoint; null: none is requested, or none fits.
std::vector<const char*> types_of(const std::vector<marlin_layer_info>& layers,
                                  const Options& options) {
  if (!options.recipe.empty()) return recipe_types(options.recipe, layers);
  const char* const block =
      options.format.empty() ? nullptr : known(parse_quantized_type(options.format)).block;
  return std::vector<const char*>(layers.size(), block);
}

[[noreturn]] void throw_no_layer(const Options& options, size_t quantized_already) {
  if (!options.quantizes()) {
    throw Failure(
        fmt::format("{}: no layer is quantized; --format or --recipe says what to quantize "
                    "floats to",
                    options.input));
  }
  throw Failure(quantized_already != 0
                    ? fmt::format("{}: every layer ({}) is quantized already; --requantize "
                                  "decodes them and quantizes them again",
                                  options.input, quantized_already)
                    : fmt::format("{}: no layer is left to quantize", options.input));
}

Choice choose(const marlin_checkpoint* checkpoint, const Options& options) {
  Choice choice;
  const std::vector<marlin_layer_info> layers = layers_of(checkpoint);
  for (const std::string& pattern : options.include) {
    if (std::none_of(layers.begin(), layers.end(),
                     [&](const auto& l) { return fits(pattern.c_str(), l.name); })) {
      throw Failure(fmt::format("--include '{}' matches no layer", pattern));
    }
  }
  const std::vector<const char*> types = types_of(layers, options);
  const bool typed = std::any_of(types.begin(), types.end(), [](auto type) { return type; });
  for (size_t i = 0; i < layers.size(); ++i) {
    const marlin_layer_info& layer = layers[i];
    const bool floats = layer.format == MARLIN_FORMAT_NONE;
    const bool meant = is_meant(options, layer.name), loads = layer.status == MARLIN_OK;
    const bool already = !floats && options.quantizes() && !options.requantize;
    const bool fits = options.recipe.empty() || types[i] != nullptr;
    if (!meant || !loads || already || !fits || (floats && !options.quantizes())) {
      if (meant && !loads) choice.unread.push_back(layer);
      if (meant && loads && already) ++choice.quantized_already;
      choice.untouched.add(layer);
      continue;
    }
    choice.names.push_back(layer.name);
    if (typed) choice.types.push_back(types[i]);
  }
  if (choice.names.empty()) throw_no_layer(options, choice.quantized_already);
  return choice;
}

marlin_convert_desc describe(const Options& options, const Choice& choice) {
  auto desc = make<marlin_convert_desc>();
  desc.scheme = known(parse_scheme(options.scheme));
  if (!options.format.empty()) {
    const WeightType type = known(parse_quantized_type(options.format));
    if (type.block == nullptr) desc.format = type.format;
  }
  desc.types = choice.types.empty() ? nullptr : choice.types.data();
  desc.group_size = options.group;
  desc.layers = choice.names.data();
  desc.layer_count = static_cast<uint32_t>(choice.names.size());
  desc.shard_bytes = options.shard_bytes;
  desc.flags = (options.asymmetric ? MARLIN_CONVERT_ASYMMETRIC : 0u) |
               (options.scales == "mse" ? MARLIN_CONVERT_SCALES_MSE : 0u) |
               (options.sparse == "2:4" ? MARLIN_CONVERT_PRUNE_2_4 : 0u) |
               (options.sparse == "as-is" ? MARLIN_CONVERT_OBEYS_2_4 : 0u) |
               (options.skip_unfit ? MARLIN_CONVERT_SKIP_UNFIT : 0u) |
               (options.force ? MARLIN_CONVERT_OVERWRITE : 0u) |
               (options.dry_run ? MARLIN_CONVERT_DRY_RUN : 0u);
  return desc;
}

/// Whether the output is a GGUF, by the rule of MARLIN_SCHEME_AUTO.
bool writes_gguf(const Options& options, bool from_gguf) {
  if (known(parse_scheme(options.scheme)) != MARLIN_SCHEME_AUTO)
    return known(parse_scheme(options.scheme)) == MARLIN_SCHEME_GGUF;
  return options.output.ends_with(".gguf") ||
         (from_gguf && !options.output.ends_with(".safetensors"));
}

bool is_gguf(const marlin_checkpoint* checkpoint) {
  auto layer = make<marlin_layer_info>();
  return marlin_checkpoint_layer(checkpoint, 0, &layer, nullptr) == MARLIN_OK &&
         layer.layout == MARLIN_LAYOUT_GGUF;
}

/// What programs make of another container with the same names.
const char* about_names(bool from_gguf, bool to_gguf) {
  if (from_gguf == to_gguf) return "";
  return to_gguf ? "the GGUF has the names of the input and names no architecture: this library "
                   "reads it, llama.cpp does not\n"
                 : "the tensors have the names of the GGUF: this library reads them, programs for "
                   "safetensors know others\n";
}

/// Names the types of blocks, and adds the layers that do not load.
void complete(std::vector<LayerOutcome>& outcomes, const Options& options, const Choice& choice,
              const marlin_checkpoint* checkpoint) {
  Context context;
  if (!choice.unread.empty()) context = make_context({.backend = MARLIN_BACKEND_CPU, .threads = 1});
  for (const marlin_layer_info& layer : choice.unread) {
    LayerOutcome& outcome = outcomes.emplace_back();
    outcome.numbers = make<marlin_convert_outcome>();
    outcome.numbers.status = layer.status;
    outcome.numbers.n = layer.n;
    outcome.numbers.k = layer.k;
    outcome.numbers.experts = layer.experts;
    outcome.numbers.group_size = layer.group_size;
    outcome.numbers.from = outcome.numbers.format = layer.format;
    outcome.numbers.bytes_before = outcome.numbers.bytes_after = layer.bytes;
    outcome.name = layer.name;
    outcome.reason = why_not(context.get(), checkpoint, layer);
    outcome.unread = true;
  }
  const bool from_gguf = is_gguf(checkpoint);
  for (LayerOutcome& outcome : outcomes) {
    if (from_gguf) outcome.from_type = tensor_type(checkpoint, outcome.name.c_str());
    if (outcome.quantized() && writes_gguf(options, from_gguf))
      outcome.to_type = block_type_of(outcome.numbers.format, outcome.numbers.flags);
  }
}

ExitCode run(const Options& options) {
  const Checkpoint checkpoint = open_checkpoint(options.input);
  const Choice choice = choose(checkpoint.get(), options);
  const LayerNorms norms(options.norms, options.output, checkpoint.get(), choice.names);
  marlin_convert_desc desc = describe(options, choice);
  desc.column_norms = norms.data();
  std::vector<LayerOutcome> outcomes;
  {
    ConvertHost host(options.threads != 0 ? options.threads : usable_threads());
    host.attach(desc);
    auto error = make<marlin_error>();
    const marlin_status status =
        marlin_checkpoint_convert(checkpoint.get(), options.output.c_str(), &desc, &error);
    host.hide_bar();
    if (status == MARLIN_E_CANCELLED) {
      fmt::print(stderr, "metal-marlin: interrupted; nothing was written\n");
      ConvertHost::end_if_interrupted();
    }
    const bool unlisted = std::string_view(error.message).find("list it too") != std::string::npos;
    const bool hint = status == MARLIN_E_UNSUPPORTED && choice.quantized_already != 0 && !unlisted;
    if (status == MARLIN_E_FILE && error.native_code == EEXIST && !options.force) {
      throw Failure(
          fmt::format("cannot write {}: {} (--force replaces it)", options.output, error.message));
    }
    check(status, error,
          fmt::format("cannot write {}{}", options.output,
                      unlisted ? " (--include '*' lists every layer)"
                      : hint   ? fmt::format(" (quantized already: {}, see --requantize)",
                                             counted(choice.quantized_already, "layer"))
                               : ""));
    outcomes = host.outcomes();
  }
  complete(outcomes, options, choice, checkpoint.get());
  const auto tensors = file_tensors(options.input);
  const uint64_t all_bytes = tensors ? tensors->bytes : 0;
  if (options.json) {
    print_quantized_json(outcomes, choice.untouched, options.input, options.output,
                         options.dry_run);
  } else {
    print_quantized(outcomes, choice.untouched, all_bytes, options.dry_run);
    const bool from_gguf = is_gguf(checkpoint.get());
    fmt::print("{}", about_names(from_gguf, writes_gguf(options, from_gguf)));
  }
  const bool all = std::all_of(outcomes.begin(), outcomes.end(),
                               [](const LayerOutcome& layer) { return layer.quantized(); });
  return all ? ExitCode::ok : ExitCode::wrong;
}

void add_options(CLI::App& sub, Options& options) {
  sub.add_option("IN", options.input, kCheckpointFile)->required();
  sub.add_option("OUT", options.output,
                 "A folder (made when there is none), or a name in .safetensors or .gguf")
      ->required();
  auto* format =
      sub.add_option("--format", options.format,
                     "What to quantize to; without it or a recipe, quantized layers change their "
                     "layout and keep their values");
  format->check(names_of(parse_quantized_type, fmt::format("{{{}}}", quantized_types())));
  sub.add_option("--recipe", options.recipe,
                 "GGUF: a type for each layer, as llama.cpp chooses them")
      ->excludes(format)
      ->check(CLI::Validator(
          [](std::string& name) {
            return is_recipe(name) ? "" : "'" + name + "' is none of {" + recipe_names() + "}";
          },
          "{" + recipe_names() + "}"));
  sub.add_option(
      "--group", options.group,
      "Weights that share a scale (integers); default 32 (mlx: 64), 0 the default, 1000000 a whole "
      "row");
  sub.add_option("--layout", options.scheme,
                 "How the file stores layers; default: by the name of OUT and the container of IN")
      ->check(names_of(parse_scheme, "{auto, compressed-tensors, gptq, gguf, marlin-24, mlx}"));
  sub.add_flag("--asymmetric", options.asymmetric, "int4 with a zero point a group");
  sub.add_option("--sparse", options.sparse,
                 "2:4: prune to two of every four first; as-is: the weights obey 2:4 already")
      ->check(CLI::IsMember({"2:4", "as-is"}));
  sub.add_option("--norms,--imatrix", options.norms,
                 "The norms of each layer's inputs (a .safetensors, or an importance matrix of "
                 "llama.cpp), which rank weights to prune (Wanda) and weigh the errors of scales")
      ->type_name(kFile);
  sub.add_option("--scales", options.scales,
                 "absmax: by the largest weight; mse: search the least squared error (slower)")
      ->check(CLI::IsMember({"absmax", "mse"}));
  sub.add_option("--include", options.include,
                 "Only layers whose name matches this pattern (may be given several times)")
      ->allow_extra_args(false);
  sub.add_option("--exclude", options.exclude,
                 "No layer whose name matches this pattern (may be given several times)")
      ->allow_extra_args(false);
  sub.add_flag(
      "--requantize", options.requantize,
      "Also layers that are quantized already: decode and quantize those again that would change");
  sub.add_flag("--skip-unfit", options.skip_unfit,
               "Leave layers as they are that the layout cannot hold; exit with 1 then");
  sub.add_option("--shard-size", options.shard_bytes,
                 "At most so many bytes of tensors a .safetensors file, as 5GB")
      ->transform(CLI::AsSizeValue(true));
  sub.add_option("--threads", options.threads, "Default: as many as the process may use");
  sub.add_flag("--force", options.force, "Replace files that are there");
  sub.add_flag("--dry-run", options.dry_run,
               "Check and list what would be written, and write nothing");
  sub.add_flag("--json", options.json, "One JSON object instead of a table");
}

}  // namespace
}  // namespace quantize_command

void add_quantize(CLI::App& app, Action& action) {
  using namespace quantize_command;
  auto* sub = app.add_subcommand("quantize", "Write a checkpoint again with its layers quantized");
  auto options = std::make_shared<Options>();
  add_options(*sub, *options);
  sub->footer(
      "All other tensors are copied unchanged. Without --include, embeddings, the output head and "
      "the routers of experts\n"
      "are left alone: *embed* *embd* *wte *wpe *lm_head* output.weight *.gate *.router "
      "*ffn_gate_inp*\n"
      "Beside .safetensors goes config.json with its quantization_config; copy the tokenizer and "
      "other files yourself.\n"
      "The output appears under its name when it is complete; interrupted, nothing of it stays.\n\n"
      "Examples:\n"
      "  metal-marlin quantize float-model model-mxfp4 --format mxfp4\n"
      "  metal-marlin quantize float-model model-gptq --format int4 --group 128 --layout gptq "
      "--scales mse\n"
      "  metal-marlin quantize float-model model-2of4 --format int4 --sparse 2:4 --layout "
      "marlin-24\n"
      "  metal-marlin quantize model-f16.gguf model-q4_k_m.gguf --recipe q4_k_m\n"
      "  metal-marlin quantize model-gptq model-mlx --layout mlx\n"
      "  metal-marlin quantize float-model out --format nvfp4 --include 'model.layers.*' --exclude "
      "'*.self_attn.*' --dry-run");
  sub->callback([&action, options] { action = [options] { return run(*options); }; });
}

}  // namespace metal_marlin::tools
