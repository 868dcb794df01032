// verify: loads every layer, multiplies by it, and compares the results with float64. It also
// compares the values with known values.
#include <fmt/core.h>

#include <bit>
#include <cstring>
#include <filesystem>
#include <functional>
#include <optional>
#include <vector>

#include "command.h"
#include "input_files.h"
#include "library.h"
#include "machine_limits.h"
#include "names.h"
#include "notes.h"
#include "printable.h"
#include "progress.h"
#include "quantize_options.h"
#include "reference.h"
#include "table.h"
#include "terminal.h"
#include "workload.h"

namespace metal_marlin::tools {
namespace verify_command {
namespace {

struct Options {
  std::string path, expect, layer, backend = "cpu";
  QuantizeOptions quantize;
  std::vector<int64_t> m = {1, 4, 17};
  int64_t rows = 0;
  uint64_t seed = 1;
};

/// Known values: a checkpoint of float32 tensors with the names of the layers.
class Expected {
 public:
  explicit Expected(const std::string& path) : checkpoint_(open_checkpoint(path)) {}
  /// Rows [first, first + count) of expert `expert` as floats, or nullptr if there is no such
  /// tensor of this shape.
  const float* rows(const marlin_layer_info& layer, uint32_t expert, int64_t first) const {
    auto error = make<marlin_error>();
    marlin_matrix matrix{};
    if (marlin_checkpoint_tensor(checkpoint_.get(), layer.name, &matrix, &error) != MARLIN_OK)
      return nullptr;
    if (matrix.dtype != MARLIN_F32 || matrix.cols != layer.k ||
        matrix.rows != layer.n * layer.experts)
      return nullptr;
    const auto* values = reinterpret_cast<const float*>(static_cast<const std::byte*>(matrix.data) +
                                                        matrix.offset_bytes);
    return values + (expert * layer.n + first) * layer.k;
  }

 private:
  Checkpoint checkpoint_;
};

/// The file of --expect, else a decoded.safetensors beside the input, else nothing.
std::optional<Expected> find_expected(const Options& options, std::string* used) {
  namespace fs = std::filesystem;
  *used = options.expect;
  if (used->empty()) {
    const fs::path path(options.path);
    const fs::path beside =
        (fs::is_directory(path) ? path : path.parent_path()) / "decoded.safetensors";
    if (!fs::exists(beside)) return std::nullopt;
    *used = beside.string();
  }
  return Expected(*used);
}

/// The place of a float32 among all of them, in their order.
int64_t place_of(uint32_t bits) {
  const int64_t magnitude = bits & 0x7FFFFFFFu;
  return bits >> 31 != 0 ? -magnitude : magnitude;
}

/// The units in the last place by which a value may be off. GPUs round scales that are quantized
/// themselves to float32; such scales belong to codebooks, and their type is F32.
int64_t units_of(const marlin_layer_info& layer, marlin_backend backend) {
  const bool codebook =
      layer.format == MARLIN_FORMAT_NF4 || layer.format == MARLIN_FORMAT_CODEBOOK4;
  return codebook && layer.dtype == MARLIN_F32 && backend != MARLIN_BACKEND_CPU ? 1 : 0;
}

/// The number of values that differ from the expected ones, in any bit or by more than so many
/// units in the last place; -1 if there are none.
int64_t count_different(const marlin_weights* weights, const marlin_layer_info& layer,
                        uint32_t expert, const Expected& expected, int64_t units) {
  int64_t different = 0;
  const int64_t stripe = rows_of_stripe(layer.k);
  std::vector<float> values;
  for (int64_t row = 0; row < layer.n; row += stripe) {
    const int64_t count = std::min(stripe, layer.n - row);
    const float* want = expected.rows(layer, expert, row);
    if (!want) return -1;
    values.resize(static_cast<size_t>(count * layer.k));
    unpack_rows(weights, row, count, layer.k, values.data());
    for (size_t i = 0; i < values.size(); ++i) {
      uint32_t wanted = 0;
      std::memcpy(&wanted, want + i, sizeof wanted);  // a file's floats may lie anywhere
      const auto got = std::bit_cast<uint32_t>(values[i]);
      different += got != wanted && (units == 0 || got >> 31 != wanted >> 31 ||
                                     std::abs(place_of(got) - place_of(wanted)) > units);
    }
  }
  return different;
}

struct Case {
  marlin_dtype dtype;
  marlin_compute compute;
};
constexpr Case kCases[] = {{MARLIN_F32, MARLIN_COMPUTE_DEFAULT},
                           {MARLIN_F16, MARLIN_COMPUTE_DEFAULT},
                           {MARLIN_BF16, MARLIN_COMPUTE_DEFAULT},
                           {MARLIN_BF16, MARLIN_COMPUTE_INT8}};

/// The result of checking one packed matrix: the worst of its products.
struct Outcome {
  double nmse = -1, nmse_int8 = -1, worst = 0;  ///< -1: there was no such product
  int64_t products = 0, wrong_products = 0;
  std::string complaint;  ///< of the first product that is wrong

  void add(const Product& product) {
    const Verdict& v = product.verdict;
    double& nmse_of = product.compute == MARLIN_COMPUTE_INT8 ? nmse_int8 : nmse;
    nmse_of = std::max(nmse_of, v.nmse);
    worst = std::max(worst, v.worst);
    ++products;
    if (v.ok()) return;
    if (wrong_products++ > 0) return;
    complaint =
        fmt::format("M = {}, {} activations, {} compute: {}", product.m,
                    dtype_name(product.a->dtype()), compute_name(product.compute), v.complaint());
  }
  void add(const Outcome& other) {
    nmse = std::max(nmse, other.nmse);
    nmse_int8 = std::max(nmse_int8, other.nmse_int8);
    worst = std::max(worst, other.worst);
    products += other.products;
    wrong_products += other.wrong_products;
    if (complaint.empty()) complaint = other.complaint;
  }
};

std::string nmse_text(double nmse) { return nmse < 0 ? "-" : fmt::format("{:.1e}", nmse); }

/// *not_served: why some products have no kernel, if there are such. `on_part` learns which part of
/// the rows to check has been checked.
Outcome multiply_and_check(const marlin_weights* weights, const Options& options,
                           std::string* not_served, const std::function<void(double)>& on_part) {
  const marlin_layer_info info = info_of(weights);
  const int64_t most = *std::max_element(options.m.begin(), options.m.end());
  std::vector<HostMatrix> activations, results;
  activations.reserve(std::size(kCases));
  results.reserve(std::size(kCases) * options.m.size());
  std::vector<Product> products;
  for (const Case& c : kCases) {
    activations.push_back(
        HostMatrix::random(most, info.k, c.dtype, options.seed + products.size()));
    for (int64_t m : options.m) {
      results.emplace_back(m, info.n, MARLIN_F32);
      const auto desc = product(weights, activations.back(), results.back(), m, c.compute);
      if (const std::string why = why_not_served(desc); !why.empty()) {
        *not_served = why;
        continue;
      }
      multiply(desc);
      products.push_back({&activations.back(), &results.back(), m, c.compute});
    }
  }
  const auto rows = options.rows ? sampled_rows(info.n, options.rows) : every_row(info.n);
  int64_t checked = 0, all = 0;
  for (const RowRange& range : rows) all += range.count;
  check_products(weights, products, rows, usable_threads(), [&](int64_t more) {
    checked += more;
    on_part(static_cast<double>(checked) / static_cast<double>(all));
  });
  Outcome outcome;
  for (const Product& p : products) outcome.add(p);
  return outcome;
}

class Verifier {
 public:
  explicit Verifier(const Options& options)
      : options_(options),
        checkpoint_(open_checkpoint(options.path)),
        context_(make_context({.backend = known(parse_backend(options.backend))})),
        backend_(device_of(known(parse_backend(options.backend))).backend),
        expected_(find_expected(options, &expected_path_)),
        table_({{"layer"},
                {"format"},
                {"N x K", Table::Align::right},
                {"experts", Table::Align::right},
                {"values"},
                {"products", Table::Align::right},
                {"of bound", Table::Align::right},
                {"nmse", Table::Align::right, true},
                {"nmse int8", Table::Align::right, true},
                {"verdict"}}) {}

  ExitCode run() {
    auto layers = layers_of(checkpoint_.get());
    if (!options_.layer.empty()) layers = {find_layer(checkpoint_.get(), options_.layer)};
    double weights = 0;
    for (const marlin_layer_info& layer : layers)
      weights += weights_of(layer) * static_cast<double>(formats_of(layer).size());
    progress_.emplace("verifying", weights);
    for (const marlin_layer_info& layer : layers) verify_layer(layer);
    progress_.reset();
    table_.print();
    for (const std::string& complaint : complaints_)
      fmt::print("{}\n", red(printable(complaint), stdout));
    notes_.print();
    if (expected_) fmt::print("values compared bit for bit with {}\n", expected_path_);
    fmt::print("{} right, {} wrong{}\n", right_, wrong_,
               skipped_ > 0 ? fmt::format(", {} not served", skipped_) : "");
    return wrong_ || skipped_ || right_ == 0 ? ExitCode::wrong : ExitCode::ok;
  }

 private:
  void verify_layer(const marlin_layer_info& layer) {
    if (layer.status == MARLIN_E_UNSUPPORTED)
      return skip(layer, "-", why_not(context_.get(), checkpoint_.get(), layer));
    for (const Quantize& quantize : formats_of(layer)) verify_as(layer, quantize);
  }

  /// What a layer is verified as: as it is, or quantized to each of some formats.
  std::vector<Quantize> formats_of(const marlin_layer_info& layer) const {
    if (layer.status == MARLIN_E_UNSUPPORTED) return {};
    if (layer.format != MARLIN_FORMAT_NONE) return {Quantize{}};
    if (const Quantize asked = options_.quantize.get(); asked.format != MARLIN_FORMAT_NONE)
      return {asked};
    std::vector<Quantize> all;
    for (const marlin_format format : measured_formats()) all.push_back({format, 0});
    return all;
  }
  static double weights_of(const marlin_layer_info& layer) {
    return static_cast<double>(layer.n) * static_cast<double>(layer.k) * layer.experts;
  }

  /// A layer that this version or this backend does not serve is neither right nor wrong.
  void skip(const marlin_layer_info& layer, const std::string& format, const std::string& why) {
    ++skipped_;
    table_.row({layer.name, format, layer.n > 0 ? fmt::format("{} x {}", layer.n, layer.k) : "?",
                "", "-", "-", "-", "-", "-",
                fmt::format("not served ({})", notes_.add(layer.name, why))});
  }

  void verify_as(const marlin_layer_info& layer, const Quantize& quantize) {
    const bool floats = layer.format == MARLIN_FORMAT_NONE;
    const std::string format =
        floats ? fmt::format("{} -> {}", dtype_name(layer.dtype), format_name(quantize.format))
               : format_name(layer.format);
    Outcome outcome;
    const Expected* expected = expected_.has_value() && !floats ? &expected_.value() : nullptr;
    int64_t different = expected != nullptr ? 0 : -1;
    std::string not_served;
    Refusal refusal{layer.status, why_not(context_.get(), checkpoint_.get(), layer)};
    const double of_expert = weights_of(layer) / layer.experts, before = done_;
    done_ += weights_of(layer);  // whatever comes of them
    for (uint32_t expert = 0; expert < layer.experts && refusal.why.empty(); ++expert) {
      progress_->at(before + expert * of_expert, layer.name);
      const Weights weights =
          try_load(context_.get(), checkpoint_.get(), layer, expert, quantize, &refusal);
      if (!weights) break;
      if (expected != nullptr && different >= 0) {
        const int64_t more =
            count_different(weights.get(), layer, expert, *expected, units_of(layer, backend_));
        different = more < 0 ? -1 : different + more;
      }
      outcome.add(multiply_and_check(weights.get(), options_, &not_served, [&](double part) {
        progress_->at(before + (expert + part) * of_expert, layer.name);
      }));
    }
    if (outcome.products == 0 && !not_served.empty()) refusal = {MARLIN_E_UNSUPPORTED, not_served};
    if (refusal.status == MARLIN_E_UNSUPPORTED) return skip(layer, format, refusal.why);
    const std::string& why = refusal.why;
    const bool right = why.empty() && outcome.wrong_products == 0 && different <= 0;
    (right ? right_ : wrong_)++;
    const std::string shape = fmt::format("{} x {}", layer.n, layer.k);
    const std::string experts = layer.experts > 1 ? std::to_string(layer.experts) : "";
    if (!why.empty()) {
      table_.row({layer.name, format, shape, experts, "-", "-", "-", "-", "-", "DOES NOT LOAD"},
                 Table::Mood::wrong);
      complaints_.push_back(fmt::format("{}: {}", layer.name, why));
      return;
    }
    table_.row({layer.name, format, shape, experts,
                different < 0    ? "-"
                : different == 0 ? "equal"
                                 : fmt::format("{} differ", different),
                std::to_string(outcome.products), fmt::format("{:.2g}", outcome.worst),
                nmse_text(outcome.nmse), nmse_text(outcome.nmse_int8), right ? "right" : "WRONG"},
               right ? Table::Mood::plain : Table::Mood::wrong);
    if (!outcome.complaint.empty())
      complaints_.push_back(fmt::format("{} ({}): {}", layer.name, format, outcome.complaint));
  }

  const Options& options_;
  Checkpoint checkpoint_;
  Context context_;
  marlin_backend backend_;  // its own, never AUTO
  std::string expected_path_;
  std::optional<Expected> expected_;
  Table table_;
  std::vector<std::string> complaints_;
  Notes notes_;  ///< why layers are not served
  std::optional<Progress> progress_;
  double done_ = 0;  ///< weights
  int right_ = 0, wrong_ = 0, skipped_ = 0;
};

ExitCode run(const Options& options) { return Verifier(options).run(); }

}  // namespace
}  // namespace verify_command

void add_verify(CLI::App& app, Action& action) {
  using namespace verify_command;
  auto* sub = app.add_subcommand(
      "verify", "Check every layer's products against float64, and its values if they are known");
  auto options = std::make_shared<Options>();
  sub->add_option("FILE", options->path, kCheckpointFile)->required();
  sub->add_option("--expect", options->expect,
                  "A .safetensors file of the true values, float32 under the layers' names, to "
                  "compare bit for bit; default: "
                  "decoded.safetensors beside FILE, if there is one")
      ->type_name(kFile);
  sub->add_option("--layer", options->layer, "This layer only; default: all");
  options->quantize.add_to(*sub);
  sub->add_option("--backend", options->backend,
                  "Where products run; auto: the first usable of cuda, metal, cpu")
      ->capture_default_str()
      ->check(backend_names());
  sub->add_option("-m", options->m, "Rows of activations, a list")
      ->delimiter(',')
      ->capture_default_str()
      ->check(in_range(int64_t{1}, int64_t{4096}));
  sub->add_option("--rows", options->rows,
                  "Check only this many rows of each matrix against float64; 0: all")
      ->check(in_range(int64_t{0}, INT64_MAX));
  sub->add_option("--seed", options->seed, "Of the activations")->capture_default_str();
  sub->footer(
      "Each layer (each expert by itself) is packed, multiplied with normally distributed "
      "activations in float32,\n"
      "float16 and bfloat16 and with INT8 compute, and every element is held to its bound "
      "(docs/command.md): 'of bound' is\n"
      "the worst error as a fraction of it. nmse must be at most 1e-11, and 5e-4 with INT8 "
      "compute, which rounds the\n"
      "activations. Layers of floats are quantized to each format, or to --format. Exits with 1 "
      "when anything is wrong or\n"
      "does not load.\n\n"
      "Examples:\n"
      "  metal-marlin verify model.gguf\n"
      "  metal-marlin verify DIR --rows 64                          a quick look at a large model\n"
      "  metal-marlin verify DIR --expect true-values.safetensors");
  sub->callback([&action, options] { action = [options] { return run(*options); }; });
}

}  // namespace metal_marlin::tools
