// inspect: lists the layers of a checkpoint, and says which of them would load.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <optional>
#include <vector>

#include "command.h"
#include "file_tensors.h"
#include "input_files.h"
#include "json.h"
#include "library.h"
#include "names.h"
#include "notes.h"
#include "printable.h"
#include "table.h"
#include "words.h"

namespace metal_marlin::tools {
namespace inspect_command {
namespace {

struct Options {
  std::string path;
  bool json = false;
};

bool is_floats(const marlin_layer_info& info) { return info.format == MARLIN_FORMAT_NONE; }
/// Floats load if a format to quantize to is given.
bool loads(const marlin_layer_info& info) { return info.status == MARLIN_OK; }
/// 0 if the library does not know the shape, as for layouts that it does not serve.
uint64_t weights_of(const marlin_layer_info& info) {
  return static_cast<uint64_t>(info.n) * static_cast<uint64_t>(info.k) * info.experts;
}

/// The bits of a layer, including scales, zeros and indices, divided by its weights. Nothing if
/// there are no weights.
std::optional<double> bits_a_weight(uint64_t bytes, uint64_t weights) {
  if (weights == 0) return std::nullopt;
  return 8 * static_cast<double>(bytes) / static_cast<double>(weights);
}

const char* zeros_of(const marlin_layer_info& info) {
  return (info.flags & MARLIN_LAYER_ZEROS) != 0           ? "integer"
         : (info.flags & MARLIN_PACK_ADDITIVE_ZEROS) != 0 ? "additive"
                                                          : "none";
}

/// The library's reasons why layers do not load. Asking needs a context, which most files do not
/// need.
class Reasons {
 public:
  explicit Reasons(const marlin_checkpoint* checkpoint) : checkpoint_(checkpoint) {}
  /// Empty if the layer loads.
  std::string of(const marlin_layer_info& info) {
    if (loads(info)) return "";
    if (!context_) context_ = make_context({.backend = MARLIN_BACKEND_CPU, .threads = 1});
    return why_not(context_.get(), checkpoint_, info);
  }

 private:
  const marlin_checkpoint* checkpoint_;
  Context context_;
};

struct Totals {
  uint64_t layers = 0, quantized = 0, sparse = 0, loadable = 0, weights = 0, bytes = 0;
  uint64_t known_bytes = 0;   ///< of layers whose weights can be counted
  uint64_t unread_bytes = 0;  ///< of layers that do not load

  void add(const marlin_layer_info& info) {
    ++layers;
    quantized += !is_floats(info);
    loadable += loads(info);
    sparse += (info.flags & MARLIN_LAYER_SPARSE_2_4) != 0;
    bytes += info.bytes;
    weights += weights_of(info);
    if (weights_of(info) > 0) known_bytes += info.bytes;
    if (!loads(info)) unread_bytes += info.bytes;
  }
  std::optional<double> bits() const { return bits_a_weight(known_bytes, weights); }
  uint64_t unread() const { return layers - loadable; }
  bool all_read() const { return layers > 0 && loadable == layers; }
};

/// What the bytes of the tensors are: of layers that load, of others, and of plain tensors.
struct Account {
  Totals layers;
  std::optional<FileTensors> tensors;  ///< of the files
  std::string method;                  ///< of the config

  Account(const Totals& totals, const std::string& path, const marlin_checkpoint* checkpoint)
      : layers(totals), tensors(file_tensors(path)), method(quant_method(checkpoint)) {}
  uint64_t bytes() const { return std::max(layers.bytes, tensors ? tensors->bytes : 0); }
  uint64_t plain_bytes() const { return bytes() - layers.bytes; }
  std::string share(uint64_t part) const {
    if (bytes() == 0) return "0 %";
    return fmt::format("{:.1f} %", 100 * static_cast<double>(part) / static_cast<double>(bytes()));
  }
  /// "2 layers are read; 4 matrices with 96 % of the bytes are not read"
  std::string sentence() const {
    const std::string by =
        method.empty() ? "" : fmt::format("; the config says quant_method '{}'", method);
    if (layers.layers == 0) {
      return (tensors ? fmt::format("no layer: none of the {} is a matrix that this version knows",
                                    counted(tensors->count, "tensor"))
                      : "no layer") +
             by;
    }
    const std::string read =
        counted(layers.loadable, "layer") + (layers.loadable == 1 ? " is read" : " are read");
    if (layers.unread() == 0) return read + by;
    return fmt::format(
        "{}; {} with {} of the bytes {} not read{}", read,
        layers.unread() == 1 ? "1 matrix" : fmt::format("{} matrices", layers.unread()),
        share(layers.unread_bytes), layers.unread() == 1 ? "is" : "are", by);
  }
};

Json number_or_null(const std::optional<double>& number) {
  return number ? Json(*number) : Json(nullptr);
}

/// null if a size is not known.
Json size_or_null(int64_t size) { return size > 0 ? Json(size) : Json(nullptr); }

/// The type of a layer's blocks or floats in a GGUF; "" in other files, whose layers have parts.
std::string type_of(const marlin_checkpoint* checkpoint, const marlin_layer_info& info) {
  return info.layout == MARLIN_LAYOUT_GGUF ? tensor_type(checkpoint, info.name) : "";
}

Json json_of(const marlin_checkpoint* checkpoint, const marlin_layer_info& info,
             const std::string& why_not) {
  return {{"name", info.name},
          {"type", text_or_null(type_of(checkpoint, info))},
          {"format", format_name(info.format)},
          {"layout", layout_name(info.layout)},
          {"n", size_or_null(info.n)},
          {"k", size_or_null(info.k)},
          {"experts", info.experts},
          {"group", is_floats(info) ? nullptr : size_or_null(info.group_size)},
          {"sparse_2_4", (info.flags & MARLIN_LAYER_SPARSE_2_4) != 0},
          {"zeros", zeros_of(info)},
          {"act_order", (info.flags & MARLIN_LAYER_ACT_ORDER) != 0},
          {"flags", flag_list(info.flags)},
          {"dtype", dtype_name(info.dtype)},
          {"bytes", info.bytes},
          {"bits_a_weight", number_or_null(bits_a_weight(info.bytes, weights_of(info)))},
          {"loads", loads(info)},
          {"status", marlin_status_name(info.status)},
          {"why_not", why_not}};
}

/// The text of a member of an object, indented by `depth` spaces, as dump(1) of the whole object
/// would print it.
std::string indented(const Json& value, size_t depth) {
  const std::string text = json_text(value, 1), indent(depth, ' ');
  std::string out;
  for (const char c : text) {
    out += c;
    if (c == '\n') out += indent;  // none is inside a string, where it is escaped
  }
  return out;
}

/// What the library says about files that it did not open, or "".
std::string note_of(const marlin_checkpoint* checkpoint) {
  marlin_value value{};
  value.struct_size = sizeof value;
  if (marlin_checkpoint_value(checkpoint, "marlin.note", &value, nullptr) != MARLIN_OK) return "";
  return {static_cast<const char*>(value.data), value.bytes};
}

// The layers are not kept: a file may have so many that a hundred bytes for each exceed the memory.

Totals print_json(const std::string& path, const marlin_checkpoint* checkpoint) {
  Reasons reasons(checkpoint);
  Totals totals;
  fmt::print("{{\n \"path\": {},\n \"layers\": [", json_text(path));
  for_each_layer(checkpoint, [&](const marlin_layer_info& info) {
    fmt::print("{}\n  {}", totals.layers == 0 ? "" : ",",
               indented(json_of(checkpoint, info, reasons.of(info)), 2));
    totals.add(info);
  });
  const Json sums = {{"layers", totals.layers},
                     {"quantized", totals.quantized},
                     {"sparse_2_4", totals.sparse},
                     {"loadable", totals.loadable},
                     {"weights", totals.weights},
                     {"bytes", totals.bytes},
                     {"bits_a_weight", number_or_null(totals.bits())}};
  const Account account(totals, path, checkpoint);
  const Json of_bytes = {
      {"read", totals.bytes - totals.unread_bytes},
      {"not_read", totals.unread_bytes},
      {"plain_tensors", account.plain_bytes()},
      {"all_tensors", account.bytes()},
      {"tensors", account.tensors ? Json(account.tensors->count) : Json(nullptr)},
      {"quant_method", text_or_null(account.method)}};
  const std::string note = note_of(checkpoint);
  fmt::print("{}],\n \"totals\": {},\n \"account\": {}{}\n}}\n", totals.layers == 0 ? "" : "\n ",
             indented(sums, 1), indented(of_bytes, 1),
             note.empty() ? "" : ",\n \"note\": " + json_text(note));
  return totals;
}

/// `note` is the number of the reason why the layer does not load. The reason is too long for a
/// column.
std::vector<std::string> cells_of(const marlin_checkpoint* checkpoint,
                                  const marlin_layer_info& info, size_t note) {
  const auto bits = bits_a_weight(info.bytes, weights_of(info));
  return {printable(info.name),
          type_of(checkpoint, info),
          is_floats(info) ? dtype_name(info.dtype) : format_and_group(info),
          layout_name(info.layout),
          info.n > 0 ? shape_text(info) : "?",
          is_floats(info) || info.dtype == 0 ? "" : dtype_name(info.dtype),
          flag_names(info.flags),
          bits ? fmt::format("{:.2f}", *bits) : "?",
          bytes_text(static_cast<double>(info.bytes)),
          !loads(info)                                                ? fmt::format("no ({})", note)
          : is_floats(info) && (info.flags & MARLIN_LAYER_SPARSE_2_4) ? "when quantized"
                                                                      : "yes"};
}

void print_account(const Account& account) {
  const Totals& totals = account.layers;
  const auto line = [&](const std::string& what, uint64_t bytes) {
    fmt::print("{:<33}{:>9}{:>9}\n", what, bytes_text(static_cast<double>(bytes)),
               account.share(bytes));
  };
  if (totals.layers > 0) {
    const auto bits = totals.bits();
    fmt::print("\n{}, {} quantized, {} 2:4 sparse, {} would load\n{} weights in {}{}\n",
               counted(totals.layers, "layer"), totals.quantized, totals.sparse, totals.loadable,
               count_text(totals.weights), bytes_text(static_cast<double>(totals.bytes)),
               bits ? fmt::format(" ({:.2f} bits per weight)", *bits) : "");
    fmt::print("\n");
    line("layers that are read", totals.bytes - totals.unread_bytes);
    line("matrices that are not read", totals.unread_bytes);
    if (account.tensors) line("tensors of no layer (norms, ...)", account.plain_bytes());
    line(account.tensors ? counted(account.tensors->count, "tensor") : "all", account.bytes());
  }
  fmt::print("\n{}\n", printable(account.sentence()));
}

void print_table(const std::string& path, const marlin_checkpoint* checkpoint, Totals& totals) {
  using enum Table::Align;
  Table table({{"layer"},
               {"type"},
               {"format"},
               {"layout"},
               {"N x K", right},
               {"scales", left, true},
               {"with", left, true},
               {"bits", right},
               {"size", right},
               {"loads"}});
  Reasons reasons(checkpoint);
  Notes notes;
  std::vector<uint32_t> numbers;  // of the notes of layers that do not load
  for_each_layer(checkpoint, [&](const marlin_layer_info& info) {
    totals.add(info);
    if (!loads(info))
      numbers.push_back(static_cast<uint32_t>(notes.add(info.name, reasons.of(info))));
    table.measure(cells_of(checkpoint, info, loads(info) ? 0 : numbers.back()));
  });
  if (totals.layers > 0) table.print_head();
  auto number = numbers.begin();
  for_each_layer(checkpoint, [&](const marlin_layer_info& info) {
    const auto mood = loads(info) ? Table::Mood::plain : Table::Mood::wrong;
    table.print_line(cells_of(checkpoint, info, loads(info) ? 0 : *number++), stdout, mood);
  });
  if (!notes.empty()) fmt::print("\n");
  notes.print();
  print_account({totals, path, checkpoint});
  const std::string note = note_of(checkpoint);
  if (!note.empty()) fmt::print("note: {}\n", printable(note));
}

ExitCode run(const Options& options) {
  const Checkpoint checkpoint = open_checkpoint(options.path);
  Totals totals;
  if (options.json) {
    totals = print_json(options.path, checkpoint.get());
  } else {
    print_table(options.path, checkpoint.get(), totals);
  }
  return totals.all_read() ? ExitCode::ok : ExitCode::wrong;
}

}  // namespace
}  // namespace inspect_command

void add_inspect(CLI::App& app, Action& action) {
  using namespace inspect_command;
  auto* sub =
      app.add_subcommand("inspect", "List the layers of a checkpoint and whether they would load");
  auto options = std::make_shared<Options>();
  sub->add_option("FILE", options->path, kCheckpointFile)->required();
  sub->add_flag("--json", options->json, "One JSON object instead of a table");
  sub->footer(
      "Reads headers and config.json only, so it is fast for files of any size. Layers that would "
      "not load are\n"
      "listed with the reason, each reason once; layers of floats load when they are quantized on "
      "the way ('when "
      "quantized').\n"
      "The last lines say what the bytes of all tensors are. Exits with 1 when a layer would not "
      "load, or when there is\n"
      "no layer.\n"
      "'type' is the type of a GGUF's tensor. "
      "'format' has the size of a scale group ('g128'; 'row': all of K), 'N x K' the number of "
      "experts before it.\n"
      "'with' tells 2:4 sparsity, zero points, act-order and the like; 'bits' are all bytes of a "
      "layer over its weights.\n\n"
      "Examples:\n"
      "  metal-marlin inspect model.gguf\n"
      "  metal-marlin inspect ~/models/some-model-gptq\n"
      "  metal-marlin inspect --json model.safetensors | jq '.layers[] | select(.loads | not)'");
  sub->callback([&action, options] { action = [options] { return run(*options); }; });
}

}  // namespace metal_marlin::tools
