// doctor: describes this machine and measures its limits.
#include <fmt/format.h>

#include <vector>

#include "command.h"
#include "cpu_info.h"
#include "kernel_checks.h"
#include "library.h"
#include "machine_limits.h"
#include "names.h"
#include "profile.h"
#include "progress.h"
#include "quantize_options.h"
#include "table.h"

namespace metal_marlin::tools {
namespace doctor_command {
namespace {

struct Options {
  bool measure = true;
  unsigned threads = 0;
};

void print_devices() {
  Table table(
      {{"backend"}, {"device"}, {"instructions"}, {"memory", Table::Align::right}, {"usable"}});
  for (const auto& info : devices()) {
    const bool usable = info.why_not[0] == '\0';
    table.row({backend_name(info.backend), info.name[0] ? info.name : "-",
               info.isa_or_arch[0] ? info.isa_or_arch : "-",
               info.memory_bytes ? bytes_text(static_cast<double>(info.memory_bytes)) : "-",
               usable ? "yes" : fmt::format("no: {}", info.why_not)});
  }
  table.print();
}

void print_processor(unsigned threads) {
  const CpuInfo& cpu = cpu_info();
  std::string caches;
  for (const auto& cache : cpu.caches) {
    caches +=
        fmt::format("{}{} {} KiB{}", caches.empty() ? "" : ", ", cache.name, cache.bytes >> 10,
                    cache.shared_by > 1 ? fmt::format(" (shared by {})", cache.shared_by) : "");
  }
  fmt::print("\nprocessor  {}\n", cpu.model);
  fmt::print("features   {}\n", cpu.features.empty()
                                    ? "none that a kernel asks for"
                                    : fmt::format("{}", fmt::join(cpu.features, " ")));
  fmt::print("caches     {}\n", caches.empty() ? "unknown" : caches);
  fmt::print("threads    {} of {} CPUs{}\n", threads, cpu.cpus,
             threads < cpu.cpus ? " (what this process may use, or was told to)" : "");
}

std::string profile_text(const marlin_device_info& info) {
  try {
    const Context context = make_context({.backend = info.backend, .device_index = info.index});
    const ProfileInfo profile = profile_of(context.get());
    if (profile.path.empty()) return "none is read";
    if (profile.products == "0") return "none; 'metal-marlin tune' makes one";
    return fmt::format("{} products in {}", profile.products, profile.path);
  } catch (const Failure& failure) {
    return failure.what();
  }
}

/// What was measured on each device. A GPU must compile a kernel to say so.
void print_profiles(bool of_gpus) {
  for (const auto& info : devices())
    if (info.why_not[0] == '\0' && (of_gpus || info.backend == MARLIN_BACKEND_CPU))
      fmt::print("profile    {}: {}\n", backend_name(info.backend), profile_text(info));
}

void print_limits(unsigned threads) {
  constexpr int kRounds = 15;
  std::vector<double> reads;
  std::vector<std::vector<double>> peaks(dot_loops().size());
  std::string reading;
  {
    Progress progress("measuring", kRounds);
    Limits limits(threads);
    reading = limits.reading();
    for (int round = 0; round < kRounds; ++round) {
      progress.at(round);
      reads.push_back(limits.read_sample());
      for (size_t i = 0; i < peaks.size(); ++i)
        peaks[i].push_back(limits.dot_sample(dot_loops()[i]));
    }
  }
  fmt::print("\nmeasured with {} thread{} at once, medians of {} samples taken in turn\n", threads,
             threads == 1 ? "" : "s", kRounds);
  fmt::print("  {:<18} {:8.1f} GB/s   {}, the fastest of {} ways\n", "reading memory",
             median(reads) / 1e9, reading, read_kernels().size());
  for (size_t i = 0; i < peaks.size(); ++i) {
    fmt::print("  {:<18} {:8.1f} Gop/s\n", dot_loops()[i].name, median(peaks[i]) / 1e9);
  }
  fmt::print(
      "A multiplication and an addition are two operations. Other processes lower these figures: "
      "compare them only with\n"
      "figures of the same minute.\n");
}

ExitCode run(const Options& options) {
  const unsigned threads = options.threads ? options.threads : usable_threads();
  print_devices();
  print_processor(threads);
  print_profiles(options.measure);
  if (options.measure) {
    for (const KernelChecks& checks : check_kernels()) print(checks);
    print_limits(threads);
  }
  for (const auto& info : devices()) {
    if (info.why_not[0] == '\0') return ExitCode::ok;
  }
  return ExitCode::wrong;
}

}  // namespace
}  // namespace doctor_command

void add_doctor(CLI::App& app, Action& action) {
  using namespace doctor_command;
  auto* sub = app.add_subcommand(
      "doctor", "What this machine can do: devices, caches, threads, measured limits");
  auto options = std::make_shared<Options>();
  sub->add_flag(
      "!--no-measure", options->measure,
      "Only describe: neither check the kernels of GPUs nor measure, which takes two seconds");
  sub->add_option("--threads", options->threads,
                  "Threads to measure with; default: all that this process may use")
      ->check(in_range(1, 1024));
  sub->footer(
      "Says of each backend whether it is usable, or why not. Exits with 1 when none is. On each "
      "GPU it says which kernels\n"
      "compute right there, which are refused, and which serve instead.\n\n"
      "Examples:\n"
      "  metal-marlin doctor\n"
      "  taskset -c 0 metal-marlin doctor      one core's share of the memory bandwidth");
  sub->callback([&action, options] { action = [options] { return run(*options); }; });
}

}  // namespace metal_marlin::tools
