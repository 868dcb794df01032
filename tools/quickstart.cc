// quickstart: does the main job on real files. It opens, packs, multiplies and checks every
// checkpoint of a folder. Then it measures one layer that is large enough for meaningful speeds.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <optional>
#include <vector>

#include "command.h"
#include "cpu_info.h"
#include "library.h"
#include "measure.h"
#include "names.h"
#include "parallel.h"
#include "printable.h"
#include "progress.h"
#include "quantize_options.h"
#include "table.h"
#include "terminal.h"
#include "words.h"

namespace metal_marlin::tools {
namespace quickstart_command {
namespace {

namespace fs = std::filesystem;

struct Options {
  std::string folder;
  int64_t n = 11776, k = 4096;
  double seconds = 2;
};

constexpr int64_t kRows[] = {1, 8, 64};  // M
constexpr double kSecondsEach = 0.01;    // for one small product

std::vector<fs::path> subfolders(const std::string& folder) {
  std::error_code error;
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (entry.is_directory()) found.push_back(entry.path());
  }
  if (error) throw Failure(fmt::format("cannot list {}: {}", folder, error.message()));
  std::sort(found.begin(), found.end());
  return found;
}

/// The last part of a message: the reason, without the file, tensor and byte before it.
std::string reason_of(const std::string& message) {
  const size_t colon = message.rfind(": ");
  return colon == std::string::npos ? message : message.substr(colon + 2);
}

/// Checks and times the layers of small checkpoints.
class SmallLayers {
 public:
  SmallLayers(marlin_context* context, Limits& limits) : context_(context), limits_(limits) {}

  void checkpoint(const fs::path& folder) {
    const std::string where = folder.filename().string();
    auto error = make<marlin_error>();
    marlin_checkpoint* opened = nullptr;
    if (marlin_checkpoint_open(folder.c_str(), nullptr, &opened, &error) != MARLIN_OK) {
      refused_.emplace_back(where, error.message);
      return;
    }
    const Checkpoint owned(opened);
    ++checkpoints_;
    for (const auto& info : layers_of(opened)) layer(where, opened, info);
  }

  /// Prints everything. Returns true if nothing was wrong. Failure if `folder` has nothing to
  /// multiply by.
  bool report(const std::string& folder) const;

 private:
  struct Row {
    std::string checkpoint, layer, format, shape, kernel;
    std::vector<double> seconds;  // one for each of kRows
    double rate = 0, nmse = 0;    // bytes a second at M = 1; the largest
  };

  void layer(const std::string& where, const marlin_checkpoint* checkpoint,
             const marlin_layer_info& info) {
    const std::string why = why_not(context_, checkpoint, info);
    if (!why.empty()) {
      refused_.emplace_back(where, reason_of(why));
      return;
    }
    const bool floats = info.format == MARLIN_FORMAT_NONE;
    Row row;
    row.checkpoint = where;
    row.layer = info.name;
    row.format = floats ? dtype_name(info.dtype) + " > mxfp4" : format_and_group(info);
    row.shape = shape_text(info);
    for (uint32_t expert = 0; expert < info.experts; ++expert) {
      const Weights weights =
          load(context_, checkpoint, info, expert, {floats ? MARLIN_MXFP4 : MARLIN_FORMAT_NONE, 0});
      for (int64_t m : kRows) multiply_one(weights.get(), m, expert == 0, row);
    }
    reads_.push_back(limits_.read_sample());
    rows_.push_back(std::move(row));
  }

  /// Multiplies and checks all columns; the first expert is also timed.
  void multiply_one(const marlin_weights* weights, int64_t m, bool timed, Row& row) {
    const marlin_layer_info info = info_of(weights);
    const HostMatrix a = HostMatrix::random(m, info.k, MARLIN_BF16, static_cast<uint64_t>(m)),
                     c(m, info.n, MARLIN_F32);
    const marlin_gemm_desc desc = product(weights, a, c, m, MARLIN_COMPUTE_DEFAULT);
    multiply(desc);
    Product checked[] = {{&a, &c, m, MARLIN_COMPUTE_DEFAULT}};
    check_products(weights, checked, every_row(info.n), limits_.threads());
    row.nmse = std::max(row.nmse, checked[0].verdict.nmse);
    wrong_ += !checked[0].verdict.ok();
    ++products_;
    if (!timed) return;
    row.seconds.push_back(time_calls([&] { multiply(desc); }, kSecondsEach));
    if (row.seconds.size() > 1) return;
    row.kernel = explained(explain(desc), "kernel");
    row.rate = static_cast<double>(info.bytes) / row.seconds.front();
  }

  marlin_context* context_;
  Limits& limits_;
  std::vector<Row> rows_;
  std::vector<std::pair<std::string, std::string>> refused_;  // checkpoint, reason
  std::vector<double> reads_;
  size_t checkpoints_ = 0, products_ = 0;
  int wrong_ = 0;
};

bool SmallLayers::report(const std::string& folder) const {
  using enum Table::Align;
  if (products_ == 0) {
    throw Failure(fmt::format(
        "{}: expected folders with checkpoints to multiply by, found none{}", folder,
        refused_.empty() ? "" : fmt::format(" ({}: {})", refused_[0].first, refused_[0].second)));
  }
  Table table({{"checkpoint"},
               {"layer", left, true},
               {"format"},
               {"N x K", right},
               {"kernel", left, true},
               {"M = 1", right},
               {"M = 8", right},
               {"M = 64", right},
               {"GB/s", right, true},
               {"of read", right},
               {"error", right, true}});
  const double read = median(reads_);
  for (const Row& row : rows_) {
    table.row({row.checkpoint, row.layer, row.format, row.shape, row.kernel,
               seconds_text(row.seconds[0]), seconds_text(row.seconds[1]),
               seconds_text(row.seconds[2]), fmt::format("{:.1f}", row.rate / 1e9),
               fmt::format("{:.0f}%", 100 * row.rate / read), fmt::format("{:.0e}", row.nmse)});
  }
  table.print();
  fmt::print("\n{}, {}, {} of bfloat16 activations, every column checked against float64: {}\n",
             counted(checkpoints_, "checkpoint"), counted(rows_.size(), "layer"),
             counted(products_, "product"), wrong_ ? fmt::format("{} WRONG", wrong_) : "all right");
  fmt::print(
      "Kernel, GB/s and its part of the {:.1f} GB/s of reading memory are of M = 1; error is the "
      "largest mean squared error\n"
      "over the mean square. Layers this small stay in the caches: their speed says nothing about "
      "memory.\n",
      read / 1e9);
  if (!refused_.empty()) fmt::print("\nNot supported yet\n");
  for (const auto& [where, reason] : refused_)
    fmt::print("  {:<22}  {}\n", printable(where), printable(reason));
  return wrong_ == 0;
}

/// bfloat16 weights that look like a trained layer's: bell-shaped, deviation 0.02.
std::vector<uint16_t> random_layer(int64_t n, int64_t k, unsigned threads) {
  std::vector<uint16_t> values(static_cast<size_t>(n * k));
  parallel_for(n, threads, [&](int64_t row) {
    Random random(static_cast<uint64_t>(row));
    for (int64_t i = 0; i < k; ++i) {
      // The sum of the four 16-bit quarters of one number is cheap enough for 48 million weights.
      // Its deviation is 37837.
      const uint64_t bits = random.next();
      const auto sum = static_cast<int32_t>((bits & 0xffff) + (bits >> 16 & 0xffff) +
                                            (bits >> 32 & 0xffff) + (bits >> 48));
      values[static_cast<size_t>(row * k + i)] =
          to_bf16(static_cast<float>(sum - 131070) * (0.02f / 37837));
    }
  });
  return values;
}

Weights quantize_layer(marlin_context* context, std::vector<uint16_t>& values, int64_t n, int64_t k,
                       marlin_format format) {
  auto desc = make<marlin_pack_desc>();
  desc.format = format;
  desc.n = n;
  desc.k = k;
  desc.values.data = values.data();
  desc.values.rows = n;
  desc.values.cols = k;
  desc.values.dtype = MARLIN_BF16;
  const marlin_pack_desc* parts[] = {&desc};
  auto error = make<marlin_error>();
  marlin_weights* weights = nullptr;
  check(marlin_weights_pack(context, parts, 1, 1, &weights, &error), error, "cannot quantize");
  return Weights(weights);
}

/// One large layer, quantized in each format, against the limits of the machine.
std::vector<Measurement> large_layer(const Options& options, const Bench& bench) {
  std::vector<Job> jobs;
  for (marlin_compute compute : {MARLIN_COMPUTE_DEFAULT, MARLIN_COMPUTE_INT8}) {
    for (int64_t m : kRows) jobs.push_back({m, compute});
  }
  std::vector<Measurement> all;
  Progress progress("one large layer", static_cast<double>(measured_formats().size()));
  std::vector<uint16_t> values = random_layer(options.n, options.k, bench.limits->threads());
  for (marlin_format format : measured_formats()) {
    progress.at(static_cast<double>(&format - measured_formats().data()), format_name(format));
    // The quantized matrix is checked. The other copies, which keep the caches cold, have random
    // codes in the same layout: quantizing each of them would take a minute, and the times would be
    // the same.
    bool quantized = false;
    std::optional<RandomWeights> random;
    Rotation rotation(
        [&] {
          if (!quantized)
            return quantized = true,
                   quantize_layer(bench.context, values, options.n, options.k, format);
          if (!random) random.emplace(WeightShape{format, options.n, options.k}, 1);
          return random->pack(bench.context);
        },
        rotation_bytes(), kMostCopies);
    for (Measurement& m : measure(bench, {&rotation, 1}, jobs)) all.push_back(std::move(m));
  }
  return all;
}

bool report_large(const std::vector<Measurement>& all) {
  using enum Table::Align;
  Table table({{"format"},
               {"compute"},
               {"M", right},
               {"kernel"},
               {"time", right},
               {"GB/s", right},
               {"of read", right},
               {"GFLOP/s", right, true},
               {"of peak", right},
               {"peak of", left, true},
               {"error", right, true}});
  bool right_all = true;
  for (const Measurement& m : all) {
    right_all = right_all && m.verdict.ok();
    table.row(
        {m.job.m == 1 ? fmt::format("{} g{}", format_name(m.format), m.group) : "",
         m.job.m == 1 ? compute_name(m.job.compute) : "", std::to_string(m.job.m), m.kernel,
         seconds_text(m.seconds), fmt::format("{:.1f}", m.byte_rate() / 1e9),
         fmt::format("{:.0f}%", 100 * m.fraction_of_read()), fmt::format("{:.0f}", m.rate() / 1e9),
         fmt::format("{:.0f}%", 100 * m.fraction_of_peak()), m.instruction,
         fmt::format("{:.0e}{}", m.verdict.nmse, m.verdict.ok() ? "" : " WRONG")},
        m.verdict.ok() ? Table::Mood::plain : Table::Mood::wrong);
  }
  table.print();
  return right_all;
}

ExitCode run(const Options& options) {
  const auto start = std::chrono::steady_clock::now();
  const auto folders = subfolders(options.folder);
  const unsigned threads = usable_threads();
  const Context context = make_context({.backend = MARLIN_BACKEND_AUTO, .threads = threads});
  const marlin_device_info device = device_of(MARLIN_BACKEND_AUTO);
  Limits limits(threads);
  fmt::print("{} ({}), {} threads\n\nReal checkpoints, {}\n\n", cpu_info().model,
             device.isa_or_arch, threads, options.folder);
  SmallLayers small(context.get(), limits);
  {
    Progress progress("checkpoints", static_cast<double>(folders.size()));
    for (size_t i = 0; i < folders.size(); ++i) {
      progress.at(static_cast<double>(i), folders[i].filename().string());
      small.checkpoint(folders[i]);
    }
  }
  bool right = small.report(options.folder);

  fmt::print(
      "\nOne large layer, {} x {} (N x K), quantized here from bfloat16; more than 400 MB of "
      "copies in turn\n\n",
      options.n, options.k);
  std::fflush(stdout);
  const auto large = large_layer(options, {context.get(), device, &limits, options.seconds});
  right = report_large(large) && right;
  if (const std::string noise = noise_text(large); !noise.empty())
    fmt::print("\n{}\n", red("noise: " + noise, stdout));
  fmt::print("\nlimits of this run: {}\n{} in {:.0f} s\n", limits_text(large),
             right ? "all right" : "SOMETHING IS WRONG",
             std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  return right ? ExitCode::ok : ExitCode::wrong;
}

}  // namespace
}  // namespace quickstart_command

void add_quickstart(CLI::App& app, Action& action) {
  using namespace quickstart_command;
  auto* sub = app.add_subcommand(
      "quickstart",
      "Pack, multiply by, check and time every checkpoint of a folder, and one large layer");
  auto options = std::make_shared<Options>();
  sub->add_option("DIR", options->folder, "A folder of checkpoint folders")->required();
  sub->add_option("-n,--n", options->n, "Rows of the large layer")
      ->capture_default_str()
      ->check(in_range(1, 1 << 20));
  sub->add_option("-k,--k", options->k, "Columns of the large layer")
      ->capture_default_str()
      ->check(in_range(1, 1 << 20));
  sub->add_option("--seconds", options->seconds, "Time for each format of the large layer, about")
      ->capture_default_str()
      ->check(in_range(0.001, 3600.0));
  sub->footer(
      "Exits with 1 when a result is not what float64 says.\n\n"
      "Example:\n"
      "  metal-marlin quickstart tests/data");
  sub->callback([&action, options] { action = [options] { return run(*options); }; });
}

}  // namespace metal_marlin::tools
