// report: everything about this machine and this build that a problem report needs, in one JSON
// file, which also answers what is known of GPUs only on paper.
#include "report.h"

#include <fmt/core.h>
#include <sys/utsname.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <regex>
#include <span>
#include <vector>

#include "command.h"
#include "cpu_info.h"
#include "device_questions.h"
#include "kernel_checks.h"
#include "library.h"
#include "measure.h"
#include "mlx_times.h"
#include "names.h"
#include "output_file.h"
#include "printable.h"
#include "progress.h"
#include "quantize_options.h"
#include "roofline.h"
#include "tuned.h"
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

namespace report_command {
namespace {

using nlohmann::ordered_json;

struct Options {
  std::string output, python = "python3";
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

constexpr int64_t kRows[] = {1, 8, 32, 64, 512};

/// The products of one device and format, beside the fastest reading of weights and the fastest
/// multiplying among them, and beside MLX.
ordered_json roofline_of(std::span<const Measurement> products, const ordered_json& mlx) {
  double reading = 0, multiplying = 0;
  for (const Measurement& m : products) {
    reading = std::max(reading, m.byte_rate());
    multiplying = std::max(multiplying, m.rate());
  }
  const Measurement& first = products.front();
  ordered_json roofline = {{"backend", first.backend},
                           {"format", format_name(first.format)},
                           {"N", first.n},
                           {"K", first.k},
                           {"weights_gbytes_per_s", reading / 1e9},
                           {"cpu_read_gbytes_per_s", first.read_rate / 1e9},
                           {"gflops", multiplying / 1e9}};
  const bool same_device = (mlx.value("device", "").find("cpu") != std::string::npos) ==
                           (first.backend == backend_name(MARLIN_BACKEND_CPU));
  const auto mlx_products =
      same_device ? mlx.value("products", ordered_json::array()) : ordered_json::array();
  for (const Measurement& m : products) {
    ordered_json product = {{"M", m.job.m},
                            {"kernel", m.kernel},
                            {"seconds", m.seconds},
                            {"of_reading", m.byte_rate() / reading},
                            {"of_multiplying", m.rate() / multiplying},
                            {"nmse", m.verdict.nmse}};
    for (const auto& theirs : mlx_products)
      if (theirs.value("format", "") == format_name(m.format) && theirs.value("M", 0) == m.job.m)
        product["mlx_over_ours"] = theirs.at("seconds").get<double>() / m.seconds;
    roofline["products"].push_back(std::move(product));
  }
  return roofline;
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
    Progress progress("reporting", static_cast<double>(measured_formats().size()));
    ordered_json answers = {{"backend", backend_name(info_.backend)}, {"device", info_.name}};
    answers.update(device_questions(context_.get()));
    report["questions"].push_back(std::move(answers));
    Limits limits(usable_threads());
    double done = 0;
    for (const marlin_format format : measured_formats()) {
      progress.at(done++, format_name(format));
      const RandomWeights random({format, options_.n, options_.k}, 1);
      const auto pack = [&] { return random.pack(context_.get()); };
      const Weights weights = pack();
      for (const int64_t m : {1, 8, 32, 512})
        report["explain"].push_back(explanation(weights.get(), format, m));
      if (format != MARLIN_INT4 && format != MARLIN_MXFP4) continue;
      Rotation rotation(pack, rotation_bytes(), kMostCopies);
      std::vector<Job> jobs;
      for (const int64_t m : kRows) jobs.push_back({.m = m, .dtype = dtype()});
      const Bench bench{context_.get(), info_, &limits,
                        options_.seconds * static_cast<double>(jobs.size())};
      const auto products = measure(bench, {&rotation, 1}, jobs);
      for (const Measurement& m : products) report["bench"].push_back(to_json(m));
      report["roofline"].push_back(roofline_of(products, report["mlx"]));
      report["tuned"].push_back(tuned_products(format, random));
    }
  }

 private:
  /// The usual kernel and the fastest for each class of M, measured now and not kept.
  ordered_json tuned_products(marlin_format format, const RandomWeights& random) const {
    const std::vector<int64_t> rows = rows_of_classes(kRows[std::size(kRows) - 1]);
    const double budget = options_.seconds * 1e3 * static_cast<double>(rows.size());
    const Context context = make_context({.backend = info_.backend,
                                          .tune_ms = static_cast<uint32_t>(std::max(budget, 1.0)),
                                          .device_index = info_.index,
                                          .without_profile = true});
    std::vector<Weights> weights;
    weights.push_back(random.pack(context.get()));
    tune(weights, rows.back(), {dtype()});
    ordered_json answer = {{"backend", backend_name(info_.backend)},
                           {"format", format_name(format)},
                           {"products", ordered_json::array()}};
    for (const int64_t m : rows) {
      const auto product = product_without_data(weights.front().get(), m, {dtype()});
      if (const std::optional<Tuned> result = tuned(explain(product))) {
        answer["products"].push_back({{"M", m},
                                      {"usual_kernel", result->usual_kernel},
                                      {"kernel", result->kernel},
                                      {"k_splits", result->k_splits},
                                      {"usual_over_tuned", result->usual_ns / result->ns}});
      }
    }
    return answer;
  }
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

/// "f32 results flushed by gemv_u4_f32_m1, ..."; empty if all were kept.
std::string lost_subnormals(const ordered_json& answers) {
  std::string lost;
  for (const auto& each : answers.at("subnormals"))
    if (each.at("answer") != "kept" && each.at("answer") != "not served")
      lost +=
          fmt::format("{}{} {} {} by {}", lost.empty() ? "" : ", ",
                      each.at("dtype").get<std::string>(), each.at("of").get<std::string>(),
                      each.at("answer").get<std::string>(), each.at("kernel").get<std::string>());
  return lost;
}

/// A few lines for people about what is in the report.
void print_summary(const ordered_json& report) {
  for (const auto& checks : report.at("kernel_checks")) {
    int refused = 0;
    for (const auto& kernel : checks.at("kernels"))
      refused += !kernel.at("refused").get<std::string>().empty();
    fmt::print("{}: {} checks of kernels, {} of them refused\n",
               checks.at("backend").get<std::string>(), checks.at("kernels").size(), refused);
  }
  for (const auto& answers : report.at("questions")) {
    const std::string lost = lost_subnormals(answers);
    int64_t wrong = 0;
    for (const auto& each : answers.at("fragments")) wrong += each.at("wrong").get<int64_t>();
    fmt::print("{}: subnormals: {}; fragments: {}\n", answers.at("backend").get<std::string>(),
               lost.empty() ? "kept" : lost,
               wrong == 0 ? "as expected" : fmt::format("{} wrong elements", wrong));
  }
  for (const auto& line : report.at("roofline"))
    fmt::print("{}, {}: weights are read with {:.1f} GB/s, products reach {:.0f} Gflop/s\n",
               line.at("backend").get<std::string>(), line.at("format").get<std::string>(),
               line.at("weights_gbytes_per_s").get<double>(), line.at("gflops").get<double>());
  const auto& mlx = report.at("mlx");
  fmt::print("MLX: {}\n", mlx.contains("why_not") ? mlx.at("why_not").get<std::string>()
                                                  : mlx.at("version").get<std::string>());
}

ExitCode run(const Options& options) {
  std::optional<OutputFile> output;
  if (!options.output.empty()) output.emplace(options.output, options.force);
  ordered_json report = {{"report", 1}, {"build", about_build()}, {"machine", about_system()}};
  for (const char* part :
       {"devices", "kernel_checks", "explain", "questions", "bench", "roofline", "tuned"})
    report[part] = ordered_json::array();
  report["mlx"] = mlx_times({options.python, options.n, options.k, options.seconds});
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
    print_summary(report);
    fmt::print("{}\n", options.output);
  } else {
    fmt::print("{}", text);
  }
  return usable && failures.empty() ? ExitCode::ok : ExitCode::wrong;
}

}  // namespace
}  // namespace report_command

void add_report(CLI::App& app, Action& action) {
  using namespace report_command;
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
  sub->add_option("--python", options->python,
                  "The Python whose MLX is timed on the same products; '': none")
      ->type_name("PROGRAM")
      ->capture_default_str();
  sub->footer(
      "The report tells the build, the system, the processor and the devices (the unusable ones "
      "with the reason).\n"
      "It tells which kernels of each GPU compute right there, what explain says of some products, "
      "the limits of\n"
      "each pipeline, whether subnormals are kept, and whether matrix fragments lie as expected. "
      "It "
      "times a short\n"
      "roofline, the usual kernels beside the fastest ones, and MLX where 'import mlx' works. "
      "Messages of the\n"
      "library come last.\n"
      "With -o, a summary is printed. No names of users, machines or home folders. Two reports can "
      "be compared with diff.\n"
      "Exits with 1 when no device is usable or one failed.\n\n"
      "Examples:\n"
      "  metal-marlin report -o report.json");
  sub->callback([&action, options] { action = [options] { return run(*options); }; });
}

}  // namespace metal_marlin::tools
