// doctor: describes this machine and measures its limits.
#include <fmt/format.h>

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "command.h"
#include "cpu_info.h"
#include "json.h"
#include "kernel_checks.h"
#include "library.h"
#include "machine_limits.h"
#include "names.h"
#include "platform.h"
#include "progress.h"
#include "quantize_options.h"
#include "table.h"

namespace metal_marlin::tools {
namespace doctor_command {
namespace {

struct Options {
  bool measure = true, json = false;
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

constexpr int kRounds = 15;

/// Medians of samples taken in turn.
struct MeasuredLimits {
  std::string reading;
  double read_rate = 0;
  std::vector<std::pair<const char*, double>> peaks;  // instruction, operations a second
};

MeasuredLimits measure_limits(unsigned threads) {
  std::vector<double> reads;
  std::vector<std::vector<double>> peaks(dot_loops().size());
  Progress progress("measuring", kRounds);
  Limits limits(threads);
  for (int round = 0; round < kRounds; ++round) {
    progress.at(round);
    reads.push_back(limits.read_sample());
    for (size_t i = 0; i < peaks.size(); ++i) peaks[i].push_back(limits.dot_sample(dot_loops()[i]));
  }
  MeasuredLimits measured{limits.reading(), median(reads), {}};
  for (size_t i = 0; i < peaks.size(); ++i)
    measured.peaks.emplace_back(dot_loops()[i].name, median(peaks[i]));
  return measured;
}

void print_limits(const MeasuredLimits& limits, unsigned threads) {
  fmt::print("\nmeasured with {} thread{} at once, medians of {} samples taken in turn\n", threads,
             threads == 1 ? "" : "s", kRounds);
  fmt::print("  {:<18} {:8.1f} GB/s   {}, the fastest of {} ways\n", "reading memory",
             limits.read_rate / 1e9, limits.reading, read_kernels().size());
  for (const auto& [instruction, peak] : limits.peaks)
    fmt::print("  {:<18} {:8.1f} Gop/s\n", instruction, peak / 1e9);
  fmt::print(
      "A multiplication and an addition are two operations. Other processes lower these figures: "
      "compare them only with\n"
      "figures of the same minute.\n");
}

Json about_build() {
#ifdef __clang__
  constexpr const char* kCompiler = __VERSION__;
#else
  constexpr const char* kCompiler = "GCC " __VERSION__;
#endif
  const uint32_t v = marlin_version();
  Json build = {{"version", fmt::format("{}.{}.{}", v >> 16, (v >> 8) & 0xff, v & 0xff)},
                {"abi", fmt::format("{}.{}", MARLIN_ABI_MAJOR, MARLIN_ABI_MINOR)},
                {"compiler", kCompiler}};
  for (const char* name : {"METAL_MARLIN_ISA", "METAL_MARLIN_KERNEL"}) {
    const char* value = std::getenv(name);
    build[name] = value != nullptr ? value : "";
  }
  return build;
}

/// Leaves out the name of the machine, which may be the name of its owner.
Json about_machine(unsigned threads) {
  const SystemNames names = system_names();
  const CpuInfo& cpu = cpu_info();
  Json caches = Json::Members{};
  for (const CacheInfo& cache : cpu.caches) caches[cache.name] = cache.bytes;
  return {{"system", names.system}, {"release", names.release}, {"machine", names.machine},
          {"processor", cpu.model}, {"features", cpu.features}, {"caches", caches},
          {"cpus", cpu.cpus},       {"threads", threads}};
}

Json about_devices() {
  Json all = Json::Items{};
  for (const marlin_device_info& info : devices())
    all.push_back({{"backend", backend_name(info.backend)},
                   {"index", info.index},
                   {"name", info.name},
                   {"architecture", info.isa_or_arch},
                   {"memory_bytes", info.memory_bytes},
                   {"why_not", info.why_not}});
  return all;
}

Json to_json(const MeasuredLimits& limits) {
  Json json = {{"reading", limits.reading}, {"read_gbytes_per_s", limits.read_rate / 1e9}};
  for (const auto& [instruction, peak] : limits.peaks) json["gops"][instruction] = peak / 1e9;
  return json;
}

void print_json(const Options& options, unsigned threads) {
  Json all = {
      {"build", about_build()}, {"machine", about_machine(threads)}, {"devices", about_devices()}};
  if (options.measure) {
    all["kernel_checks"] = Json::Items{};
    for (const KernelChecks& checks : check_kernels())
      all["kernel_checks"].push_back(tools::to_json(checks));
    all["limits"] = to_json(measure_limits(threads));
  }
  fmt::print("{}\n", json_text(all, 1));
}

void print_all(const Options& options, unsigned threads) {
  print_devices();
  print_processor(threads);
  if (!options.measure) return;
  for (const KernelChecks& checks : check_kernels()) print(checks);
  print_limits(measure_limits(threads), threads);
}

ExitCode run(const Options& options) {
  const unsigned threads = options.threads ? options.threads : usable_threads();
  options.json ? print_json(options, threads) : print_all(options, threads);
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
  sub->add_flag("--json", options->json,
                "One JSON object: what a maintainer needs to know of a machine");
  sub->add_option("--threads", options->threads,
                  "Threads to measure with; default: all that this process may use")
      ->check(in_range(1, 1024));
  sub->footer(
      "Says of each backend whether it is usable, or why not. Exits with 1 when none is. On each "
      "GPU it says which kernels\n"
      "compute right there, which are refused, and which serve instead. With --json it adds what "
      "the library was built\n"
      "with and what it said of refused kernels. No names of users, machines or folders are in "
      "it.\n\n"
      "Examples:\n"
      "  metal-marlin doctor\n"
      "  metal-marlin doctor --json >doctor.json\n"
      "  taskset -c 0 metal-marlin doctor      one core's share of the memory bandwidth");
  sub->callback([&action, options] { action = [options] { return run(*options); }; });
}

}  // namespace metal_marlin::tools
