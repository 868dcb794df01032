// inspect: what a checkpoint holds, and what of it would load.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "command.h"
#include "library.h"
#include "names.h"
#include "printable.h"
#include "table.h"

namespace metal_marlin::tools {
namespace {

struct Options {
  std::string path;
  bool json = false;
};

struct Entry {
  marlin_layer_info info;
  std::string why_not;  ///< empty: it loads (floats: with a format to quantise to)
  bool floats() const { return info.format == MARLIN_FORMAT_NONE; }
  /// 0 where the library does not know the shape, as of layouts that it does not serve.
  uint64_t weights() const { return static_cast<uint64_t>(info.n) * static_cast<uint64_t>(info.k) * info.experts; }
};

/// All bytes of a layer, scales, zeros and indices too, over its weights; none when there are no weights.
std::optional<double> bits_a_weight(uint64_t bytes, uint64_t weights) {
  if (weights == 0) return std::nullopt;
  return 8 * static_cast<double>(bytes) / static_cast<double>(weights);
}

const char* zeros_of(const marlin_layer_info& info) {
  return (info.flags & MARLIN_LAYER_ZEROS) != 0           ? "integer"
         : (info.flags & MARLIN_PACK_ADDITIVE_ZEROS) != 0 ? "additive"
                                                          : "none";
}

std::vector<Entry> read_entries(const marlin_checkpoint* checkpoint) {
  std::vector<Entry> entries;
  Context context;
  for (const marlin_layer_info& info : layers_of(checkpoint)) {
    // A context is opened only where the library must be asked for its words.
    if (info.status != MARLIN_OK && !context) context = make_context({.backend = MARLIN_BACKEND_CPU, .threads = 1});
    entries.push_back({info, info.status == MARLIN_OK ? "" : why_not(context.get(), checkpoint, info)});
  }
  return entries;
}

struct Totals {
  uint64_t layers = 0, quantised = 0, sparse = 0, loadable = 0, weights = 0, bytes = 0;
  uint64_t known_bytes = 0;  ///< of layers whose weights can be counted
};

Totals add_up(const std::vector<Entry>& entries) {
  Totals totals;
  for (const Entry& entry : entries) {
    ++totals.layers;
    totals.quantised += !entry.floats();
    totals.loadable += entry.why_not.empty();
    totals.sparse += (entry.info.flags & MARLIN_LAYER_SPARSE_2_4) != 0;
    totals.bytes += entry.info.bytes;
    totals.weights += entry.weights();
    if (entry.weights() > 0) totals.known_bytes += entry.info.bytes;
  }
  return totals;
}

nlohmann::ordered_json number_or_null(const std::optional<double>& number) {
  return number ? nlohmann::ordered_json(*number) : nlohmann::ordered_json(nullptr);
}

/// null where a size is not known.
nlohmann::ordered_json size_or_null(int64_t size) {
  return size > 0 ? nlohmann::ordered_json(size) : nlohmann::ordered_json(nullptr);
}

void print_json(const std::string& path, const std::vector<Entry>& entries) {
  nlohmann::ordered_json layers = nlohmann::ordered_json::array();
  for (const Entry& entry : entries) {
    const marlin_layer_info& info = entry.info;
    layers.push_back({{"name", info.name},
                      {"format", format_name(info.format)},
                      {"layout", layout_name(info.layout)},
                      {"n", size_or_null(info.n)},
                      {"k", size_or_null(info.k)},
                      {"experts", info.experts},
                      {"group", entry.floats() ? nullptr : size_or_null(info.group_size)},
                      {"sparse_2_4", (info.flags & MARLIN_LAYER_SPARSE_2_4) != 0},
                      {"zeros", zeros_of(info)},
                      {"act_order", (info.flags & MARLIN_LAYER_ACT_ORDER) != 0},
                      {"flags", flag_list(info.flags)},
                      {"dtype", dtype_name(info.dtype)},
                      {"bytes", info.bytes},
                      {"bits_a_weight", number_or_null(bits_a_weight(info.bytes, entry.weights()))},
                      {"loads", entry.why_not.empty()},
                      {"status", marlin_status_name(info.status)},
                      {"why_not", entry.why_not}});
  }
  const Totals totals = add_up(entries);
  const nlohmann::ordered_json all = {{"path", path},
                                      {"layers", layers},
                                      {"totals",
                                       {{"layers", totals.layers},
                                        {"quantised", totals.quantised},
                                        {"sparse_2_4", totals.sparse},
                                        {"loadable", totals.loadable},
                                        {"weights", totals.weights},
                                        {"bytes", totals.bytes},
                                        {"bits_a_weight", number_or_null(bits_a_weight(totals.known_bytes, totals.weights))}}}};
  fmt::print("{}\n", json_text(all, 1));
}

void print_table(const std::vector<Entry>& entries) {
  using enum Table::Align;
  std::vector<std::string> notes;  // why layers do not load: too long for a column
  Table table({{"layer"},
               {"format"},
               {"layout"},
               {"N x K", right},
               {"experts", right},
               {"group", right},
               {"scales"},
               {"with"},
               {"bits", right},
               {"size", right},
               {"loads"}});
  for (const Entry& entry : entries) {
    const marlin_layer_info& info = entry.info;
    const auto bits = bits_a_weight(info.bytes, entry.weights());
    std::string loads = entry.floats() ? "when quantised" : "yes";
    if (!entry.why_not.empty()) {
      notes.push_back(entry.why_not);
      loads = fmt::format("no ({})", notes.size());
    }
    table.row({info.name, entry.floats() ? dtype_name(info.dtype) : format_name(info.format), layout_name(info.layout),
               info.n > 0 ? fmt::format("{} x {}", info.n, info.k) : "?", info.experts > 1 ? std::to_string(info.experts) : "",
               info.group_size > 0 && !entry.floats() ? std::to_string(info.group_size) : "",
               entry.floats() || info.dtype == 0 ? "" : dtype_name(info.dtype), flag_names(info.flags),
               bits ? fmt::format("{:.2f}", *bits) : "?", bytes_text(static_cast<double>(info.bytes)), loads});
  }
  table.print();
  if (!notes.empty()) fmt::print("\n");
  for (size_t i = 0; i < notes.size(); ++i) fmt::print("({}) {}\n", i + 1, printable(notes[i]));
  const Totals totals = add_up(entries);
  const auto bits = bits_a_weight(totals.known_bytes, totals.weights);
  fmt::print("\n{} layer{}, {} quantised, {} 2:4 sparse, {} would load; {:.4g} million weights in {}{}\n", totals.layers,
             totals.layers == 1 ? "" : "s", totals.quantised, totals.sparse, totals.loadable,
             static_cast<double>(totals.weights) / 1e6, bytes_text(static_cast<double>(totals.bytes)),
             bits ? fmt::format(" ({:.2f} bits a weight)", *bits) : "");
}

ExitCode inspect(const Options& options) {
  const Checkpoint checkpoint = open_checkpoint(options.path);
  const std::vector<Entry> entries = read_entries(checkpoint.get());
  if (options.json) {
    print_json(options.path, entries);
  } else {
    print_table(entries);
  }
  return ExitCode::ok;
}

}  // namespace

void add_inspect(CLI::App& app, Action& action) {
  auto* sub = app.add_subcommand("inspect", "List the layers of a checkpoint and whether they would load");
  auto options = std::make_shared<Options>();
  sub->add_option("FILE", options->path, "A .safetensors, .safetensors.index.json or .gguf file, or a folder with one")
      ->required();
  sub->add_flag("--json", options->json, "One JSON object instead of a table");
  sub->footer(
      "Reads headers and config.json only, so it is fast for files of any size. Layers that would not load are\n"
      "listed with the reason; layers of floats load when they are quantised on the way ('when quantised').\n"
      "'with' tells 2:4 sparsity, zero points, act-order and the like; 'bits' are all bytes of a layer over its weights.\n\n"
      "Examples:\n"
      "  metal-marlin inspect model.gguf\n"
      "  metal-marlin inspect ~/models/some-model-gptq\n"
      "  metal-marlin inspect --json model.safetensors | jq '.layers[] | select(.loads | not)'");
  sub->callback([&action, options] { action = [options] { return inspect(*options); }; });
}

}  // namespace metal_marlin::tools
