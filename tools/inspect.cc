// inspect: what a checkpoint holds, and what of it would load.
#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "command.h"
#include "library.h"
#include "names.h"
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
  uint64_t weights() const { return static_cast<uint64_t>(info.n) * static_cast<uint64_t>(info.k) * info.experts; }
};

std::vector<Entry> read_entries(const marlin_checkpoint* checkpoint) {
  std::vector<Entry> entries;
  Context context;
  for (const marlin_layer_info& info : layers_of(checkpoint)) {
    // A context is opened only where the library must be asked for its words.
    if (info.status != MARLIN_OK && !context) context = make_context(MARLIN_BACKEND_CPU, 1);
    entries.push_back({info, info.status == MARLIN_OK ? "" : why_not(context.get(), checkpoint, info)});
  }
  return entries;
}

struct Totals {
  uint64_t layers = 0, quantised = 0, loadable = 0, weights = 0, bytes = 0;
};

Totals add_up(const std::vector<Entry>& entries) {
  Totals totals;
  for (const Entry& entry : entries) {
    ++totals.layers;
    totals.quantised += !entry.floats();
    totals.loadable += entry.why_not.empty();
    totals.bytes += entry.info.bytes;
    totals.weights += entry.weights();
  }
  return totals;
}

void print_json(const std::string& path, const std::vector<Entry>& entries) {
  nlohmann::ordered_json layers = nlohmann::ordered_json::array();
  for (const auto& [info, why_not] : entries) {
    layers.push_back({{"name", info.name},
                      {"format", format_name(info.format)},
                      {"layout", layout_name(info.layout)},
                      {"n", info.n},
                      {"k", info.k},
                      {"experts", info.experts},
                      {"group", info.group_size},
                      {"flags", flag_list(info.flags)},
                      {"dtype", dtype_name(info.dtype)},
                      {"bytes", info.bytes},
                      {"loads", why_not.empty()},
                      {"why_not", why_not}});
  }
  const Totals totals = add_up(entries);
  const nlohmann::ordered_json all = {{"path", path},
                                      {"layers", layers},
                                      {"totals",
                                       {{"layers", totals.layers},
                                        {"quantised", totals.quantised},
                                        {"loadable", totals.loadable},
                                        {"weights", totals.weights},
                                        {"bytes", totals.bytes}}}};
  fmt::print("{}\n", all.dump(1));
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
               {"size", right},
               {"loads"}});
  for (const Entry& entry : entries) {
    const marlin_layer_info& info = entry.info;
    const std::string flags = flag_names(info.flags);
    std::string loads = entry.floats() ? "when quantised" : "yes";
    if (!entry.why_not.empty()) {
      notes.push_back(entry.why_not);
      loads = fmt::format("no ({})", notes.size());
    }
    table.row({info.name, entry.floats() ? dtype_name(info.dtype) : format_name(info.format), layout_name(info.layout),
               info.n > 0 ? fmt::format("{} x {}", info.n, info.k) : "?", info.experts > 1 ? std::to_string(info.experts) : "",
               info.group_size > 0 && !entry.floats() ? std::to_string(info.group_size) : "",
               entry.floats() ? "" : dtype_name(info.dtype) + (flags.empty() ? "" : ", " + flags),
               bytes_text(static_cast<double>(info.bytes)), loads});
  }
  table.print();
  if (!notes.empty()) fmt::print("\n");
  for (size_t i = 0; i < notes.size(); ++i) fmt::print("({}) {}\n", i + 1, notes[i]);
  const Totals totals = add_up(entries);
  fmt::print("\n{} layer{}, {} quantised, {} would load; {:.4g} million weights in {} ({:.2f} bits a weight)\n", totals.layers,
             totals.layers == 1 ? "" : "s", totals.quantised, totals.loadable, static_cast<double>(totals.weights) / 1e6,
             bytes_text(static_cast<double>(totals.bytes)),
             totals.weights > 0 ? 8 * static_cast<double>(totals.bytes) / static_cast<double>(totals.weights) : 0.0);
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
      "listed with the reason; layers of floats load when they are quantised on the way ('when quantised').\n\n"
      "Examples:\n"
      "  metal-marlin inspect model.gguf\n"
      "  metal-marlin inspect ~/models/some-model-gptq\n"
      "  metal-marlin inspect --json model.safetensors | jq '.layers[] | select(.loads | not)'");
  sub->callback([&action, options] { action = [options] { return inspect(*options); }; });
}

}  // namespace metal_marlin::tools
