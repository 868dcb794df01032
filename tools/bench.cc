// bench: measures how fast products are, as a fraction of the machine's limits in the same minute.
#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "command.h"
#include "cpu_info.h"
#include "library.h"
#include "measure.h"
#include "names.h"
#include "notes.h"
#include "progress.h"
#include "shape_options.h"
#include "table.h"
#include "terminal.h"
#include "trace.h"
#include "words.h"

namespace metal_marlin::tools {
namespace bench_command {
namespace {

struct Options {
  ShapeOptions shape;
  std::vector<int64_t> m = {1, 8, 64};
  std::vector<std::string> computes = {"default", "int8"}, dtypes = {"bf16"};
  std::vector<unsigned> threads = {0};
  std::string backend = "auto", out_dtype = "f32";
  int64_t top_k = 1;
  double skew = 0;
  double seconds = 1;
  std::string trace;  ///< the file to write, or ""
  bool json = false, row_invariant = false, force = false;
};

std::vector<Job> jobs_of(const Options& options) {
  std::vector<Job> jobs;
  for (const auto& compute : options.computes) {
    for (const auto& dtype : options.dtypes) {
      for (int64_t m : options.m) {
        jobs.push_back({m, known(parse_compute(compute)), known(parse_activation_dtype(dtype)),
                        known(parse_activation_dtype(options.out_dtype)),
                        options.shape.experts() == 0 ? 0 : options.top_k, options.skew});
        if (!options.row_invariant) continue;
        jobs.push_back(jobs.back());
        jobs.back().row_invariant = true;
      }
    }
  }
  return jobs;
}

constexpr size_t kColumns = 18;

Table empty_table() {
  using enum Table::Align;
  return Table({{"times", right},
                {"N x K", right},
                {"format"},
                {"group", right},
                {"compute"},
                {"A"},
                {"M", right},
                {"threads", right},
                {"kernel"},
                {"time", right},
                {"on GPU", right},
                {"GB/s", right},
                {"GFLOP/s", right, true},
                {"of limit", right},
                {"limit", left, true},
                {"over dense", right},
                {"over usual", right},
                {"nmse", right, true}});
}

void add_row(Table& table, Notes& notes, const Measurement& m) {
  const std::string times = m.times != 0 ? std::to_string(m.times) : "",
                    shape = m.times != 0 ? fmt::format("{} x {}", m.n, m.k) : "";
  std::string weights = m.type.empty() ? format_name(m.format) : m.type;
  if (m.sparse) weights += " 2:4";
  if (m.job.top_k != 0) weights += fmt::format(", {} of {} experts", m.distinct_experts, m.experts);
  if (!m.not_served.empty()) {
    const size_t note = notes.add(weights + " with " + compute_name(m.job.compute), m.not_served);
    std::vector<std::string> cells = {times,
                                      shape,
                                      weights,
                                      std::to_string(m.group),
                                      compute_name(m.job.compute),
                                      dtype_name(m.job.dtype),
                                      std::to_string(m.job.m),
                                      std::to_string(m.threads),
                                      fmt::format("not served ({})", note)};
    cells.resize(kColumns);
    table.row(std::move(cells));
    return;
  }
  table.row({times, shape, weights, std::to_string(m.group), compute_name(m.job.compute),
             dtype_name(m.job.dtype), std::to_string(m.job.m), std::to_string(m.threads), m.kernel,
             seconds_text(m.seconds), m.device_seconds != 0 ? seconds_text(m.device_seconds) : "",
             fmt::format("{:.1f}", m.byte_rate() / 1e9), fmt::format("{:.0f}", m.rate() / 1e9),
             fmt::format("{:.0f}%", 100 * m.fraction_of_limit()), m.limit(),
             m.dense_seconds != 0 ? fmt::format("{:.2f}x", m.dense_seconds / m.seconds) : "",
             m.usual_seconds != 0 ? fmt::format("{:.2f}x", m.seconds / m.usual_seconds) : "",
             fmt::format("{:.1e}{}", m.verdict.nmse, m.verdict.ok() ? "" : " WRONG")},
            m.verdict.ok() ? Table::Mood::plain : Table::Mood::wrong);
}

/// Measures everything that the options request. Each result goes to `report` at once.
template <class Report>
void measure_all(const Options& options, Trace* trace, const Report& report) {
  const marlin_device_info device = device_of(known(parse_backend(options.backend)));
  const std::vector<Job> jobs = jobs_of(options);
  const auto subjects = options.shape.subjects();
  Progress progress("measuring", static_cast<double>(subjects.size() * options.threads.size()));
  double done = 0;
  for (unsigned asked : options.threads) {
    const unsigned threads = asked ? asked : usable_threads();
    const Context context =
        make_context({.backend = device.backend, .threads = threads, .trace = trace});
    Limits limits(threads);
    for (const Subject& subject : subjects) {
      progress.at(done,
                  subject.file != nullptr ? subject.layer.name : weight_type_name(subject.type));
      std::vector<Rotation> rotations;
      for (const bool sparse : options.shape.sparsities(subject.type)) {
        rotations.emplace_back(options.shape.make(context.get(), subject, sparse), rotation_bytes(),
                               kMostCopies);
      }
      const double budget = options.seconds * static_cast<double>(jobs.size() * rotations.size());
      for (Measurement& m : measure({context.get(), device, &limits, budget}, rotations, jobs)) {
        if (subject.times != 0) {
          m.layer = subject.layer.name;
          m.times = subject.times;
        }
        report(m);
      }
      progress.at(++done);
    }
  }
}

/// What all products of a token take together, for each kind of job that all of them serve.
void print_sums(std::span<const Measurement> all) {
  struct Sum {
    double seconds = 0;
    uint64_t products = 0, bytes = 0;
  };
  std::map<std::tuple<unsigned, int64_t, std::string, std::string>, Sum> sums;
  uint64_t most = 0;
  for (const Measurement& m : all) {
    if (m.times == 0) return;
    Sum& sum = sums[{m.threads, m.job.m, compute_name(m.job.compute), dtype_name(m.job.dtype)}];
    sum.seconds += m.seconds * static_cast<double>(m.times);
    sum.bytes += m.bytes * m.times;
    sum.products += m.times;
    most = std::max(most, sum.products);
  }
  for (const auto& [job, sum] : sums) {
    const auto& [threads, rows, compute, dtype] = job;
    if (sum.products != most) continue;
    fmt::print("{} of {} activations through all {}, {} compute, {}: {}, {} of weights{}\n",
               counted(static_cast<size_t>(rows), "row"), dtype, counted(sum.products, "product"),
               compute, counted(threads, "thread"), seconds_text(sum.seconds),
               bytes_text(static_cast<double>(sum.bytes)),
               rows == 1 ? fmt::format("; {:.1f} tokens a second", 1 / sum.seconds) : "");
  }
  fmt::print("\n");
}

void print_limits(std::span<const Measurement> all) {
  for (size_t begin = 0, end = 0; begin < all.size(); begin = end) {
    while (end < all.size() && all[end].threads == all[begin].threads) ++end;
    const auto some = all.subspan(begin, end - begin);
    fmt::print("limits of the same run with {}: {}\n", counted(some[0].threads, "thread"),
               limits_text(some));
  }
  if (const std::string noise = noise_text(all); !noise.empty())
    fmt::print("{}\n", red("noise: " + noise, stdout));
}

/// What the columns mean.
void print_words(std::span<const Measurement> all, const Options& options) {
  fmt::print(
      "GB/s counts the packed weights that are read, GFLOP/s 2 M N K (of experts: for each that "
      "a row has). The limit is "
      "the\n"
      "longer of reading the weights and multiplying at the peak of the instruction; 'of limit' "
      "is its time over ours. All\n"
      "are medians of samples taken in turn.\n");
  const bool raced = std::any_of(all.begin(), all.end(),
                                 [](const Measurement& m) { return m.dense_seconds != 0; });
  if (raced)
    fmt::print(
        "'over dense' is the time by dense weights over the time by 2:4 sparse ones of the same "
        "shape.\n");
  if (options.row_invariant)
    fmt::print(
        "'over usual' is the time with MARLIN_GEMM_ROW_INVARIANT over the time without, of the "
        "line above.\n");
}

ExitCode run(const Options& options) {
  if (options.shape.experts() != 0 && options.top_k > options.shape.experts()) {
    throw Failure(fmt::format("--top-k {}: expected at most the {} of --experts", options.top_k,
                              options.shape.experts()),
                  ExitCode::usage);
  }
  std::vector<Measurement> all;
  Table table = empty_table();
  Notes notes;
  bool right = true;
  std::optional<Trace> trace;
  if (!options.trace.empty()) trace.emplace(options.trace, options.force);
  measure_all(options, trace ? &*trace : nullptr, [&](const Measurement& m) {
    add_row(table, notes, m);
    if (!m.not_served.empty()) {
      if (options.json)
        fmt::print(stderr, "metal-marlin: left out {} with {} compute: {}\n", format_name(m.format),
                   compute_name(m.job.compute), m.not_served);
      return;
    }
    all.push_back(m);
    right = right && m.verdict.ok();
    if (!options.json) return;
    fmt::print("{}\n", json_text(to_json(m)));
    std::fflush(stdout);  // a record is of use as soon as it is made
  });
  if (all.empty()) {
    if (!options.json) notes.print();
    throw Failure("no kernel of this backend does any of these products");
  }
  if (trace) trace->write();
  if (!options.json) {
    const std::string shape = fmt::format("{} x {} (N x K)", all.front().n, all.front().k);
    fmt::print("{} on {}\n\n", all.front().times == 0 ? shape : "each kind of layers of a file",
               cpu_info().model);
    table.print();
    notes.print();
    fmt::print("\n");
    print_sums(all);
    print_limits(all);
    print_words(all, options);
  }
  return right ? ExitCode::ok : ExitCode::wrong;
}

constexpr const char* kFooter =
    "Weights are rotated through copies of more than 400 MB, so that they come from memory, and "
    "every product is\n"
    "checked against float64 on a sample of columns; exits with 1 when one is wrong.\n\n"
    "JSON fields: backend, kernel, format, compute, M, N, K, group, threads, seconds, "
    "gbytes_per_s, gflops, limit\n"
    "('read' or the instruction), fraction_of_limit, nmse; dtype, out_dtype, weight_bytes, "
    "read_gbytes_per_s,\n"
    "instruction, peak_gflops, sparse ('none' or '2:4'), limit_spread (of the samples of reading), "
    "other_processors\n"
    "(that other processes had), device_seconds (on a GPU, by its own "
    "clock; the rates are then\n"
    "of it), dense_over_sparse (with --sparse both), over_usual (with --row-invariant, of every "
    "second product: its\n"
    "time over that of the product before); with --experts: experts, top_k, "
    "skew, distinct_experts (of one\n"
    "product: those whose weights are read, the bytes; operations are 2 M top_k N K). Limits are "
    "those of the CPU.\n\n"
    "Examples:\n"
    "  metal-marlin bench\n"
    "  metal-marlin bench --format mxfp4,int4 --compute int8 -m 1,512\n"
    "  metal-marlin bench --format int4 --group 128 --threads 1,2 -m 128 --json\n"
    "  metal-marlin bench --format fp4,int4 --sparse both -m 1,4\n"
    "  metal-marlin bench --format int4,nvfp4 --row-invariant -m 1,4,64\n"
    "  metal-marlin bench --format mxfp4 --experts 128 --top-k 4 -n 2880 -k 2880 -m 1,64\n"
    "  metal-marlin bench --format mxfp4 -m 1,64 --trace steps.json   what their steps take\n"
    "  metal-marlin bench --file model.gguf -m 1              what all layers take for a token\n"
    "  metal-marlin bench --file model.gguf --layer blk.0.ffn_down.weight";

}  // namespace
}  // namespace bench_command

void add_bench(CLI::App& app, Action& action) {
  using namespace bench_command;
  auto* sub = app.add_subcommand(
      "bench", "Time products and judge them by the machine's limits, measured in the same run");
  auto options = std::make_shared<Options>();
  options->shape.add_to(*sub, true);
  sub->add_option("--backend", options->backend,
                  "Where products run; auto: the first usable of cuda, metal, cpu")
      ->capture_default_str()
      ->check(backend_names());
  sub->add_option("-m", options->m, "Rows of activations, a list")
      ->delimiter(',')
      ->capture_default_str()
      ->check(in_range(int64_t{1}, int64_t{1} << 20));
  sub->add_option("--compute", options->computes, "Computes, a list")
      ->delimiter(',')
      ->capture_default_str()
      ->check(compute_names());
  sub->add_option("--dtype", options->dtypes, "Types of the activations, a list")
      ->delimiter(',')
      ->capture_default_str()
      ->check(dtype_names());
  sub->add_option("--out-dtype", options->out_dtype, "Type of the result")
      ->capture_default_str()
      ->check(dtype_names());
  sub->add_option("--top-k", options->top_k, "Experts of every row of activations, drawn at random")
      ->capture_default_str()
      ->check(in_range(1, 1024))
      ->needs("--experts");
  sub->add_option(
         "--skew", options->skew,
         "How uneven experts are drawn: the r-th most frequent with a weight of 1 / r^skew")
      ->capture_default_str()
      ->check(in_range(0.0, 8.0))
      ->needs("--experts");
  sub->add_option("--threads", options->threads,
                  "Numbers of threads, a list; default: all that this process may use")
      ->delimiter(',')
      ->check(in_range(1, 1024));
  sub->add_option("--seconds", options->seconds, "Time for each row of the table, about")
      ->capture_default_str()
      ->check(in_range(0.001, 3600.0));
  sub->add_flag("--row-invariant", options->row_invariant,
                "Race every product with MARLIN_GEMM_ROW_INVARIANT against the same without");
  sub->add_option("--trace", options->trace,
                  "A file to write: what each step took, for ui.perfetto.dev and chrome://tracing");
  add_force(*sub, options->force);
  sub->add_flag("--json", options->json, "One JSON record a line, each as soon as it is measured");
  sub->footer(kFooter);
  sub->callback([&action, options] { action = [options] { return run(*options); }; });
}

}  // namespace metal_marlin::tools
