// quantize: writes a copy of a checkpoint of floats (or of other codes) in 4 bits.
#include <fmt/core.h>
#include <fnmatch.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "command.h"
#include "input_files.h"
#include "library.h"
#include "machine_limits.h"
#include "names.h"
#include "printable.h"
#include "quantize_host.h"
#include "quantize_options.h"
#include "table.h"

namespace metal_marlin::tools {
namespace {

/// The layers that recipes skip, because quantizing them costs much and saves little: embeddings,
/// the output head, routers of experts. Vectors (norms, biases) are not layers.
constexpr const char* kDefaultExcludes[] = {"*embed*", "*embd*",    "*wte",
                                            "*wpe",    "*lm_head*", "output.weight",
                                            "*.gate",  "*.router",  "*ffn_gate_inp*"};

struct Options {
  std::string input, output, format, scheme = "auto", scales = "absmax", sparse, norms;
  uint32_t group = 0, threads = 0;
  uint64_t shard_bytes = 0;
  std::vector<std::string> include, exclude;
  bool asymmetric = false, requantize = false, skip_unfit = false, force = false, dry_run = false,
       json = false;
};

bool matches(const std::vector<std::string>& patterns, const std::string& name) {
  return std::any_of(patterns.begin(), patterns.end(), [&](const std::string& pattern) {
    return fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
  });
}

/// Whether the options select this name.
bool is_meant(const Options& options, const std::string& name) {
  static const std::vector<std::string> defaults(std::begin(kDefaultExcludes),
                                                 std::end(kDefaultExcludes));
  const bool in =
      options.include.empty() ? !matches(defaults, name) : matches(options.include, name);
  return in && !matches(options.exclude, name);
}

struct Choice {
  std::vector<const char*> names;
  size_t quantized_already = 0;  ///< selected, but not chosen
};

Choice choose(const marlin_checkpoint* checkpoint, const Options& options) {
  Choice choice;
  for (const marlin_layer_info& layer : layers_of(checkpoint)) {
    if (!is_meant(options, layer.name)) continue;
    if (layer.format != MARLIN_FORMAT_NONE && !options.requantize) {
      ++choice.quantized_already;
      continue;
    }
    choice.names.push_back(layer.name);
  }
  for (const std::string& pattern : options.include) {
    const auto all = layers_of(checkpoint);
    if (std::none_of(all.begin(), all.end(),
                     [&](const auto& l) { return fnmatch(pattern.c_str(), l.name, 0) == 0; })) {
      throw Failure(fmt::format("--include '{}' matches no layer", pattern));
    }
  }
  if (choice.names.empty()) {
    throw Failure(choice.quantized_already != 0
                      ? fmt::format("{}: every layer ({}) is quantized already; --requantize "
                                    "decodes them and quantizes them again",
                                    options.input, choice.quantized_already)
                      : fmt::format("{}: no layer is left to quantize", options.input));
  }
  return choice;
}

/// The norms of the columns of each chosen layer, from tensors F32 [k] with the names of the
/// layers.
class Norms {
 public:
  Norms(const Options& options, const marlin_checkpoint* checkpoint, const Choice& choice) {
    if (options.norms.empty()) return;
    const Checkpoint file = open_checkpoint(options.norms);
    values_.reserve(choice.names.size());
    for (const char* name : choice.names) {
      marlin_matrix tensor{};
      auto error = make<marlin_error>();
      check(marlin_checkpoint_tensor(file.get(), name, &tensor, &error), error,
            fmt::format("cannot take the norms of '{}' from {}", name, options.norms));
      const int64_t k = find_layer(checkpoint, name).k;
      if (tensor.dtype != MARLIN_F32 || tensor.rows != 1 || tensor.cols != k) {
        throw Failure(fmt::format("{}: tensor '{}': expected f32 [{}], found {} [{}, {}]",
                                  options.norms, name, k, dtype_name(tensor.dtype), tensor.rows,
                                  tensor.cols));
      }
      std::vector<float>& values = values_.emplace_back(static_cast<size_t>(k));
      std::memcpy(values.data(), tensor.data, values.size() * sizeof(float));
      marlin_matrix norms{};
      norms.data = values.data();
      norms.rows = 1;
      norms.cols = k;
      norms.dtype = MARLIN_F32;
      matrices_.push_back(norms);
    }
  }
  const marlin_matrix* data() const { return matrices_.empty() ? nullptr : matrices_.data(); }

 private:
  std::vector<std::vector<float>> values_;
  std::vector<marlin_matrix> matrices_;
};

marlin_convert_desc describe(const Options& options, const Choice& choice) {
  auto desc = make<marlin_convert_desc>();
  desc.scheme = known(parse_scheme(options.scheme));
  desc.format = known(parse_format(options.format));
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

struct Sums {
  uint64_t layers = 0, skipped = 0, weights = 0, before = 0, after = 0;
  double error = 0, norm = 0, kept = 0;
  double bits() const {
    return weights == 0 ? 0 : 8 * static_cast<double>(after) / static_cast<double>(weights);
  }
};

Sums add_up(const std::vector<LayerOutcome>& outcomes) {
  Sums sums;
  for (const LayerOutcome& layer : outcomes) {
    if (!layer.quantized()) {
      ++sums.skipped;
      continue;
    }
    ++sums.layers;
    sums.weights += layer.weights();
    sums.before += layer.numbers.bytes_before;
    sums.after += layer.numbers.bytes_after;
    sums.error += layer.numbers.squared_error;
    sums.norm += layer.numbers.squared_norm;
    sums.kept += layer.numbers.kept_norm;
  }
  return sums;
}

double bits_of(const LayerOutcome& layer) {
  return 8 * static_cast<double>(layer.numbers.bytes_after) / static_cast<double>(layer.weights());
}

/// The signal-to-noise ratio in dB; "" if nothing was compared.
std::string snr_text(double norm, double error) {
  if (norm == 0) return "";
  return error == 0 ? "exact" : fmt::format("{:.2f}", 10 * std::log10(norm / error));
}

std::string shape_text(const marlin_convert_outcome& layer) {
  return fmt::format("{}{} x {}", layer.experts > 1 ? fmt::format("{} x ", layer.experts) : "",
                     layer.n, layer.k);
}

void print_table(const Options& options, const std::vector<LayerOutcome>& outcomes) {
  using enum Table::Align;
  const bool sparse = std::any_of(outcomes.begin(), outcomes.end(), [](const auto& layer) {
    return (layer.numbers.flags & MARLIN_LAYER_SPARSE_2_4) != 0;
  });
  std::vector<Table::Column> columns = {{"layer"},         {"from"},         {"to"},
                                        {"N x K", right},  {"group", right}, {"bits/weight", right},
                                        {"before", right}, {"after", right}, {"SNR dB", right}};
  if (sparse) columns.push_back({"kept", right});
  Table table(columns);
  for (const LayerOutcome& layer : outcomes) {
    const marlin_convert_outcome& o = layer.numbers;
    const std::string flags = flag_names(o.flags);
    std::vector<std::string> cells = {
        layer.name,
        format_name(o.from),
        layer.quantized() ? format_name(o.format) + (flags.empty() ? "" : ", " + flags)
                          : "left as it is",
        shape_text(o),
        std::to_string(o.group_size),
        fmt::format("{:.2f}", bits_of(layer)),
        bytes_text(static_cast<double>(o.bytes_before)),
        bytes_text(static_cast<double>(o.bytes_after)),
        snr_text(o.squared_norm, o.squared_error)};
    if (sparse)
      cells.push_back(
          o.squared_norm > 0 ? fmt::format("{:.2f}%", 100 * o.kept_norm / o.squared_norm) : "");
    table.row(std::move(cells));
  }
  table.print();
  for (const LayerOutcome& layer : outcomes) {
    if (!layer.quantized())
      fmt::print("\n'{}' stays as it is: {}\n", printable(layer.name), printable(layer.reason));
  }
  const Sums sums = add_up(outcomes);
  const std::string snr = snr_text(sums.norm, sums.error);
  fmt::print("\n{}{} layer{} quantized, {} -> {}, {:.2f} bits a weight{}\n",
             options.dry_run ? "would be: " : "", sums.layers, sums.layers == 1 ? "" : "s",
             bytes_text(static_cast<double>(sums.before)),
             bytes_text(static_cast<double>(sums.after)), sums.bits(),
             snr.empty() ? "" : fmt::format(", SNR {} dB", snr));
}

void print_json(const Options& options, const std::vector<LayerOutcome>& outcomes) {
  nlohmann::ordered_json layers = nlohmann::ordered_json::array();
  for (const LayerOutcome& layer : outcomes) {
    const marlin_convert_outcome& o = layer.numbers;
    layers.push_back({{"name", layer.name},
                      {"quantized", layer.quantized()},
                      {"reason", layer.reason},
                      {"from", format_name(o.from)},
                      {"format", format_name(o.format)},
                      {"n", o.n},
                      {"k", o.k},
                      {"experts", o.experts},
                      {"group", o.group_size},
                      {"flags", flag_list(o.flags)},
                      {"bits_per_weight", bits_of(layer)},
                      {"bytes_before", o.bytes_before},
                      {"bytes_after", o.bytes_after},
                      {"squared_error", o.squared_error},
                      {"squared_norm", o.squared_norm},
                      {"kept_norm", o.kept_norm}});
  }
  const Sums sums = add_up(outcomes);
  const nlohmann::ordered_json all = {{"input", options.input},
                                      {"output", options.output},
                                      {"dry_run", options.dry_run},
                                      {"layers", layers},
                                      {"totals",
                                       {{"quantized", sums.layers},
                                        {"left", sums.skipped},
                                        {"weights", sums.weights},
                                        {"bytes_before", sums.before},
                                        {"bytes_after", sums.after},
                                        {"bits_per_weight", sums.bits()},
                                        {"squared_error", sums.error},
                                        {"squared_norm", sums.norm},
                                        {"kept_norm", sums.kept}}}};
  fmt::print("{}\n", json_text(all, 1));
}

/// The library protects the files that it reads, but it takes the norms from memory. This function
/// protects the files of the norms from names of output files.
void keep_norms(const Options& options) {
  namespace fs = std::filesystem;
  InputFiles norms;
  norms.add_checkpoint(options.norms);
  std::error_code none;
  const bool is_folder = fs::is_directory(options.output, none);
  const fs::path output = options.output, folder = is_folder ? output : output.parent_path();
  const std::string stem = is_folder ? "model" : output.stem().string();
  for (fs::directory_iterator entry(folder.empty() ? "." : folder, none), end;
       !none && entry != end; entry.increment(none)) {
    const std::string name = entry->path().filename().string();
    const bool may_get =
        name.starts_with(stem) || name == "config.json" || name == "quantize_config.json";
    if (!may_get || !norms.has(entry->path().string())) continue;
    throw Failure(fmt::format("cannot write {}: {} is part of the norms; write to another name",
                              options.output, entry->path().string()));
  }
}

ExitCode quantize(const Options& options) {
  const Checkpoint checkpoint = open_checkpoint(options.input);
  if (!options.norms.empty()) keep_norms(options);
  const Choice choice = choose(checkpoint.get(), options);
  const Norms norms(options, checkpoint.get(), choice);
  marlin_convert_desc desc = describe(options, choice);
  desc.column_norms = norms.data();
  std::vector<LayerOutcome> outcomes;
  {
    ConvertHost host(options.threads != 0 ? options.threads : usable_threads());
    host.attach(desc);
    auto error = make<marlin_error>();
    const marlin_status status =
        marlin_checkpoint_convert(checkpoint.get(), options.output.c_str(), &desc, &error);
    if (status == MARLIN_E_CANCELLED) {
      fmt::print(stderr, "metal-marlin: interrupted; nothing was written\n");
      ConvertHost::end_if_interrupted();
    }
    const bool hint = status == MARLIN_E_UNSUPPORTED && choice.quantized_already != 0;
    if (status == MARLIN_E_FILE && error.native_code == EEXIST && !options.force) {
      throw Failure(
          fmt::format("cannot write {}: {} (--force replaces it)", options.output, error.message));
    }
    check(status, error,
          fmt::format("cannot write {}{}", options.output,
                      hint ? fmt::format(" ({} layers are quantized already, see --requantize)",
                                         choice.quantized_already)
                           : ""));
    outcomes = host.outcomes();
  }
  if (options.json) {
    print_json(options, outcomes);
  } else {
    print_table(options, outcomes);
  }
  return add_up(outcomes).skipped != 0 ? ExitCode::wrong : ExitCode::ok;
}

void add_options(CLI::App& sub, Options& options) {
  sub.add_option("IN", options.input,
                 "A .safetensors, .safetensors.index.json or .gguf file, or a folder with one")
      ->required();
  sub.add_option("OUT", options.output,
                 "A folder (made when there is none), or a name in .safetensors or .gguf")
      ->required();
  sub.add_option("--format", options.format, "What to quantize to")
      ->required()
      ->check(names_of(parse_format, "{int4, mxfp4, nvfp4}"));
  sub.add_option(
      "--group", options.group,
      "Weights that share a scale (int4); default 32, 0 the default, 1000000 a whole row");
  sub.add_option("--layout", options.scheme,
                 "How the file stores layers; default: by the name of OUT and the container of IN")
      ->check(names_of(parse_scheme, "{auto, compressed-tensors, gptq, gguf, marlin-24}"));
  sub.add_flag("--asymmetric", options.asymmetric, "int4 with a zero point a group");
  auto* sparse =
      sub.add_option("--sparse", options.sparse,
                     "2:4: prune to two of every four first; as-is: the weights obey 2:4 already");
  sparse->check(CLI::IsMember({"2:4", "as-is"}));
  sub.add_option("--norms", options.norms,
                 "With --sparse 2:4: a .safetensors with the norms of each layer's inputs (Wanda)")
      ->type_name(kFile)
      ->needs(sparse);
  sub.add_option("--scales", options.scales,
                 "absmax: by the largest weight; mse: search the least squared error (slower)")
      ->check(CLI::IsMember({"absmax", "mse"}));
  sub.add_option("--include", options.include,
                 "Only layers whose name matches this pattern (may be given several times)")
      ->allow_extra_args(false);
  sub.add_option("--exclude", options.exclude,
                 "No layer whose name matches this pattern (may be given several times)")
      ->allow_extra_args(false);
  sub.add_flag("--requantize", options.requantize,
               "Also layers that are quantized already: decode them and quantize again");
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

void add_quantize(CLI::App& app, Action& action) {
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
      "  metal-marlin quantize model-f16.gguf model-q4_0.gguf --format int4\n"
      "  metal-marlin quantize float-model out --format nvfp4 --include 'model.layers.*' --exclude "
      "'*.self_attn.*' --dry-run");
  sub->callback([&action, options] { action = [options] { return quantize(*options); }; });
}

}  // namespace metal_marlin::tools
