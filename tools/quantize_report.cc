#include "quantize_report.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "json.h"
#include "names.h"
#include "notes.h"
#include "printable.h"
#include "table.h"
#include "words.h"

namespace metal_marlin::tools {
namespace {

struct Sums {
  uint64_t layers = 0, exact = 0, skipped = 0, weights = 0, before = 0, after = 0;
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
    if (layer.exact()) ++sums.exact;
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
  const auto weights = static_cast<double>(layer.weights());  // 0: of an unknown form
  return weights == 0 ? 0 : 8 * static_cast<double>(layer.numbers.bytes_after) / weights;
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

/// "left as they are: 3 matrices with 24 % of the bytes, the first token_embd.weight"
void print_untouched(const Untouched& untouched, uint64_t all_bytes) {
  if (untouched.matrices == 0) return;
  const std::string share =
      all_bytes == 0
          ? bytes_text(static_cast<double>(untouched.bytes))
          : fmt::format("{:.1f} % of the bytes", 100 * static_cast<double>(untouched.bytes) /
                                                     static_cast<double>(all_bytes));
  if (untouched.matrices == 1)
    fmt::print("left as it is: 1 matrix with {}, {}\n", share, printable(untouched.first));
  else
    fmt::print("left as they are: {} matrices with {}, the first {}\n", untouched.matrices, share,
               printable(untouched.first));
}

}  // namespace

void print_quantized(const std::vector<LayerOutcome>& outcomes, const Untouched& untouched,
                     uint64_t all_bytes, bool dry_run) {
  using enum Table::Align;
  const bool sparse = std::any_of(outcomes.begin(), outcomes.end(), [](const auto& layer) {
    return (layer.numbers.flags & MARLIN_LAYER_SPARSE_2_4) != 0;
  });
  std::vector<Table::Column> columns = {{"layer"},
                                        {"from"},
                                        {"to"},
                                        {"type"},
                                        {"new type"},
                                        {"N x K", right},
                                        {"group", right, true},
                                        {"bits/weight", right, true},
                                        {"before", right, true},
                                        {"after", right, true},
                                        {"SNR dB", right}};
  if (sparse) columns.push_back({"kept", right});
  Table table(columns);
  for (const LayerOutcome& layer : outcomes) {
    const marlin_convert_outcome& o = layer.numbers;
    const std::string flags = flag_names(o.flags);
    std::vector<std::string> cells = {
        layer.name,
        layer.unread ? "not read" : format_name(o.from),
        layer.quantized() ? format_name(o.format) + (flags.empty() ? "" : ", " + flags)
                          : "left as it is",
        layer.from_type,
        layer.to_type,
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
  Notes notes;
  for (const LayerOutcome& layer : outcomes) {
    if (!layer.quantized())
      notes.add(layer.name, "'" + layer.name + "' stays as it is: " + layer.reason);
  }
  if (!notes.empty()) fmt::print("\n");
  notes.print();
  const Sums sums = add_up(outcomes);
  std::string snr = snr_text(sums.norm, sums.error);
  if (!snr.empty()) snr = sums.error != 0 ? fmt::format(", SNR {} dB", snr) : ", " + snr;
  const std::string exact =
      sums.exact == 0 ? "" : fmt::format(" ({} without changing a value)", sums.exact);
  fmt::print("\n{}{} quantized{}, {} -> {}, {:.2f} bits per weight{}\n",
             dry_run ? "would be: " : "", counted(sums.layers, "layer"), exact,
             bytes_text(static_cast<double>(sums.before)),
             bytes_text(static_cast<double>(sums.after)), sums.bits(), snr);
  print_untouched(untouched, all_bytes);
}

void print_quantized_json(const std::vector<LayerOutcome>& outcomes, const Untouched& untouched,
                          const std::string& input, const std::string& output, bool dry_run) {
  Json layers = Json::Items{};
  for (const LayerOutcome& layer : outcomes) {
    const marlin_convert_outcome& o = layer.numbers;
    layers.push_back({{"name", layer.name},
                      {"quantized", layer.quantized()},
                      {"exact", layer.exact()},
                      {"reason", layer.reason},
                      {"from", layer.unread ? "not read" : format_name(o.from)},
                      {"from_type", text_or_null(layer.from_type)},
                      {"format", format_name(o.format)},
                      {"type", text_or_null(layer.to_type)},
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
  const Json all = {{"input", input},
                    {"output", output},
                    {"dry_run", dry_run},
                    {"layers", layers},
                    {"totals",
                     {{"quantized", sums.layers},
                      {"exact", sums.exact},
                      {"left", sums.skipped},
                      {"matrices_left", untouched.matrices},
                      {"bytes_left", untouched.bytes},
                      {"weights", sums.weights},
                      {"bytes_before", sums.before},
                      {"bytes_after", sums.after},
                      {"bits_per_weight", sums.bits()},
                      {"squared_error", sums.error},
                      {"squared_norm", sums.norm},
                      {"kept_norm", sums.kept}}}};
  fmt::print("{}\n", json_text(all, 1));
}

}  // namespace metal_marlin::tools
