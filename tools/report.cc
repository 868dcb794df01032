// report: everything about this machine and this build that a problem report needs, in one JSON
// file.
#include "report.h"

#include <fmt/core.h>
#include <sys/utsname.h>

#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <regex>

#include "command.h"
#include "cpu_info.h"
#include "kernel_checks.h"
#include "library.h"
#include "measure.h"
#include "names.h"
#include "output_file.h"
#include "printable.h"
#include "progress.h"
#include "quantize_options.h"
#include "roofline.h"
#include "workload.h"

namespace metal_marlin::tools {
std::string without_home_folders(std::string text) {
  if (const char* home = std::getenv("HOME");
      home != nullptr && std::string_view(home).size() > 1) {
    const std::string folder = home;
    for (size_t at = 0; (at = text.find(folder, at)) != std::string::npos; ++at)
      text.replace(at, folder.size(), "~");
  }
  static const std::regex folders("/(Users|home)/[^/\"\\s]+");
  return std::regex_replace(text, folders, "~");
}

namespace {

using nlohmann::ordered_json;

struct Options {
  std::string output;
  int64_t n = 4096, k = 4096;
  double seconds = 0.2;
  bool force = false;
};

ordered_json about_build() {
  const uint32_t v = marlin_version();
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value != nullptr ? value : "");
  };
#ifdef __clang__
  constexpr const char* kCompiler = __VERSION__;
#else
  constexpr const char* kCompiler = "GCC " __VERSION__;
#endif
#ifdef NDEBUG
  constexpr const char* kAsserts = "off";
#else
  constexpr const char* kAsserts = "on";
#endif
  return {{"version", fmt::format("{}.{}.{}", v >> 16, (v >> 8) & 0xff, v & 0xff)},
          {"abi", fmt::format("{}.{}", MARLIN_ABI_MAJOR, MARLIN_ABI_MINOR)},
          {"compiler", kCompiler},
          {"asserts", kAsserts},
          {"METAL_MARLIN_ISA", variable("METAL_MARLIN_ISA")},
          {"METAL_MARLIN_KERNEL", variable("METAL_MARLIN_KERNEL")},
          {"METAL_MARLIN_PROFILE", variable("METAL_MARLIN_PROFILE")}};
}

/// Leaves out the name of the machine, which may be the name of its owner.
ordered_json about_system() {
  utsname names{};
  uname(&names);
  const CpuInfo& cpu = cpu_info();
  ordered_json caches;
  for (const CacheInfo& cache : cpu.caches) caches[cache.name] = cache.bytes;
  return {{"system", names.sysname}, {"release", names.release},   {"machine", names.machine},
          {"processor", cpu.model},  {"features", cpu.features},   {"caches", caches},
          {"cpus", cpu.cpus},        {"threads", usable_threads()}};
}

ordered_json about_device(const marlin_device_info& info) {
  return {{"backend", backend_name(info.backend)},
          {"index", info.index},
          {"name", info.name},
          {"architecture", info.isa_or_arch},
          {"memory_bytes", info.memory_bytes},
          {"why_not", info.why_not}};
}

/// The kernels that serve on one usable device, the reasons, and their speed.
class DeviceReport {
 public:
  DeviceReport(const Options& options, const marlin_device_info& info,
               std::vector<std::string>& messages)
      : options_(options),
        info_(info),
        context_(make_context(
            {.backend = info.backend, .device_index = info.index, .messages = &messages})) {}

  void add_to(ordered_json& report) const {
    Progress progress("reporting", static_cast<double>(all_formats().size()));
    Limits limits(usable_threads());
    double done = 0;
    for (const marlin_format format : all_formats()) {
      progress.at(done++, format_name(format));
      const RandomWeights random({format, options_.n, options_.k}, 1);
      const auto pack = [&] { return random.pack(context_.get()); };
      const Weights weights = pack();
      for (const int64_t m : {1, 8, 32, 512})
        report["explain"].push_back(explanation(weights.get(), format, m));
      if (format != MARLIN_INT4 && format != MARLIN_MXFP4) continue;
      Rotation rotation(pack, rotation_bytes(), kMostCopies);
      const Job jobs[] = {{.m = 1, .dtype = dtype()}, {.m = 64, .dtype = dtype()}};
      const Bench bench{context_.get(), info_, &limits,
                        options_.seconds * static_cast<double>(std::size(jobs))};
      for (const Measurement& m : measure(bench, {&rotation, 1}, jobs))
        report["bench"].push_back(to_json(m));
    }
  }

 private:
  /// The type of activations for which each kind of device has kernels of its own.
  marlin_dtype dtype() const {
    return info_.backend == MARLIN_BACKEND_CPU ? MARLIN_BF16 : MARLIN_F16;
  }
  ordered_json explanation(const marlin_weights* weights, marlin_format format, int64_t m) const {
    const HostMatrix a(m, options_.k, dtype()), c(m, options_.n, MARLIN_F32);
    ordered_json lines;
    for (const auto& [key, value] :
         explained(explain(product(weights, a, c, m, MARLIN_COMPUTE_DEFAULT))))
      lines[key] = value;
    return {{"backend", backend_name(info_.backend)},
            {"format", format_name(format)},
            {"M", m},
            {"N", options_.n},
            {"K", options_.k},
            {"dtype", dtype_name(dtype())},
            {"lines", lines}};
  }

  const Options& options_;
  const marlin_device_info info_;
  const Context context_;
};

ExitCode write_report(const Options& options) {
  std::optional<OutputFile> output;
  if (!options.output.empty()) output.emplace(options.output, options.force);
  ordered_json report = {{"report", 1}, {"build", about_build()}, {"machine", about_system()}};
  for (const char* part : {"devices", "kernel_checks", "explain", "bench"})
    report[part] = ordered_json::array();
  std::vector<std::string> messages, failures;
  bool usable = false;
  for (const KernelChecks& checks : check_kernels())
    report["kernel_checks"].push_back(to_json(checks));
  for (const marlin_device_info& info : devices()) {
    report["devices"].push_back(about_device(info));
    if (info.why_not[0] != '\0') continue;
    usable = true;
    try {
      DeviceReport(options, info, messages).add_to(report);
    } catch (const Failure& failure) {
      failures.push_back(fmt::format("{}: {}", backend_name(info.backend), failure.what()));
    }
  }
  report["messages"] = messages;
  report["failures"] = failures;
  const std::string text = without_home_folders(json_text(report, 1)) + "\n";
  if (output) {
    output->write(text);
    output->commit();
    fmt::print("{}\n", options.output);
  } else {
    fmt::print("{}", text);
  }
  return usable && failures.empty() ? ExitCode::ok : ExitCode::wrong;
}

}  // namespace

void add_report(CLI::App& app, Action& action) {
  auto* sub =
      app.add_subcommand("report", "Everything that a problem report needs, in one JSON file");
  auto options = std::make_shared<Options>();
  const auto sizes = in_range(int64_t{1}, int64_t{1} << 24);
  sub->add_option("-o,--output", options->output, "Write to this file; default: standard output")
      ->type_name(kFile);
  add_force(*sub, options->force);
  sub->add_option("-n,--n", options->n, "Rows of the weights of its products")
      ->capture_default_str()
      ->check(sizes);
  sub->add_option("-k,--k", options->k, "Columns of them")->capture_default_str()->check(sizes);
  sub->add_option("--seconds", options->seconds, "Time for each of its few measurements, about")
      ->capture_default_str()
      ->check(in_range(0.001, 3600.0));
  sub->footer(
      "Build, system, processor, devices (the unusable ones with the reason), which kernels of "
      "each GPU compute right there,\n"
      "what explain says of some products, a short bench, and messages of the library. No names of "
      "users, machines or home\n"
      "folders. Two reports can be compared with diff. Exits with 1 when no device is usable or "
      "one failed.\n\n"
      "Examples:\n"
      "  metal-marlin report -o report.json");
  sub->callback([&action, options] { action = [options] { return write_report(*options); }; });
}

}  // namespace metal_marlin::tools
