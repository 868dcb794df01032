// quickstart: does the main job on real files. It opens, packs, multiplies and checks every
// checkpoint of a folder.
#include <fmt/core.h>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "command.h"
#include "cpu_info.h"
#include "library.h"
#include "measure.h"
#include "names.h"
#include "printable.h"
#include "progress.h"
#include "table.h"
#include "words.h"

namespace metal_marlin::tools {
namespace quickstart_command {
namespace {

namespace fs = std::filesystem;

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
    if (marlin_checkpoint_open(folder.string().c_str(), nullptr, &opened, &error) != MARLIN_OK) {
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
      const Weights weights = load(context_, checkpoint, info, expert,
                                   {floats ? MARLIN_FORMAT_MXFP4 : MARLIN_FORMAT_NONE, 0});
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

ExitCode run(const std::string& folder) {
  const auto folders = subfolders(folder);
  const unsigned threads = usable_threads();
  const Context context = make_context({.backend = MARLIN_BACKEND_AUTO, .threads = threads});
  Limits limits(threads);
  fmt::print("{} ({}), {} threads\n\nReal checkpoints, {}\n\n", cpu_info().model,
             device_of(MARLIN_BACKEND_AUTO).isa_or_arch, threads, folder);
  SmallLayers small(context.get(), limits);
  {
    Progress progress("checkpoints", static_cast<double>(folders.size()));
    for (size_t i = 0; i < folders.size(); ++i) {
      progress.at(static_cast<double>(i), folders[i].filename().string());
      small.checkpoint(folders[i]);
    }
  }
  const bool right = small.report(folder);
  fmt::print("\n{}\n", right ? "all right" : "SOMETHING IS WRONG");
  return right ? ExitCode::ok : ExitCode::wrong;
}

}  // namespace
}  // namespace quickstart_command

void add_quickstart(CLI::App& app, Action& action) {
  using namespace quickstart_command;
  auto* sub = app.add_subcommand("quickstart",
                                 "Pack, multiply by, check and time every checkpoint of a folder");
  auto folder = std::make_shared<std::string>();
  sub->add_option("DIR", *folder, "A folder of checkpoint folders")->required();
  sub->footer(
      "Exits with 1 when a result is not what float64 says.\n\n"
      "Example:\n"
      "  metal-marlin quickstart tests/data");
  sub->callback([&action, folder] { action = [folder] { return run(*folder); }; });
}

}  // namespace metal_marlin::tools
