#include "kernel_checks.h"

#include <fmt/format.h>

#include <algorithm>

#include "command.h"
#include "library.h"
#include "names.h"
#include "progress.h"
#include "table.h"
#include "workload.h"

namespace metal_marlin::tools {
namespace {

constexpr int64_t kServedRows[] = {1, 2, 3, 4, 6, 8, 16, 32, 64};  // one of each tile
constexpr int64_t kServedN = 64, kServedK = 256;  // the checks have shapes of their own

ServingKernel serving(const marlin_weights* weights, marlin_format format, int64_t m) {
  const HostMatrix a(m, kServedK, MARLIN_F16), c(m, kServedN, MARLIN_F32);
  const std::string text = explain(product(weights, a, c, m, MARLIN_COMPUTE_DEFAULT));
  return {format,
          m,
          explained(text, "kernel"),
          explained(text, "probe"),
          explained(text, "pipeline"),
          explained(text, "instead_of")};
}

void check(KernelChecks& checks) {
  const auto formats = measured_formats();
  Progress progress("checking kernels",
                    static_cast<double>(formats.size() * std::size(kServedRows)));
  double done = 0;
  const Context context = make_context({.backend = checks.device.backend,
                                        .device_index = checks.device.index,
                                        .messages = &checks.messages});
  for (const marlin_format format : formats) {
    const Weights weights = RandomWeights({format, kServedN, kServedK}, 1).pack(context.get());
    for (const int64_t m : kServedRows) {
      progress.at(done++, format_name(format));
      checks.kernels.push_back(serving(weights.get(), format, m));
    }
  }
}

}  // namespace

std::vector<KernelChecks> check_kernels() {
  std::vector<KernelChecks> all;
  for (const marlin_device_info& info : devices()) {
    if (info.backend == MARLIN_BACKEND_CPU || info.why_not[0] != '\0') continue;
    KernelChecks& checks = all.emplace_back();
    checks.device = info;
    try {
      check(checks);
    } catch (const Failure& failure) {
      checks.failure = failure.what();
    }
  }
  return all;
}

void print(const KernelChecks& checks) {
  fmt::print("\nkernels of {} {}: each compared with float64 on this device, half activations\n",
             backend_name(checks.device.backend), checks.device.name);
  Table table({{"format"}, {"verified", Table::Align::right}, {"refused"}, {"served instead by"}});
  for (const marlin_format format : measured_formats()) {
    std::vector<std::string> verified;
    bool any_refused = false;
    const auto count = [&] { return std::to_string(verified.size()); };
    for (const ServingKernel& kernel : checks.kernels)
      if (kernel.format == format &&
          std::find(verified.begin(), verified.end(), kernel.kernel) == verified.end())
        verified.push_back(kernel.kernel);
    for (const ServingKernel& kernel : checks.kernels) {
      if (kernel.format != format || kernel.refused.empty()) continue;
      table.row({any_refused ? "" : format_name(format), any_refused ? "" : count(), kernel.refused,
                 kernel.kernel});
      any_refused = true;
    }
    if (!any_refused) table.row({format_name(format), count(), "none", ""});
  }
  table.print();
  for (const std::string& message : checks.messages) fmt::print("{}\n", message);
  if (!checks.failure.empty()) fmt::print("the check ended early: {}\n", checks.failure);
}

Json to_json(const KernelChecks& checks) {
  Json json = {{"backend", backend_name(checks.device.backend)}, {"device", checks.device.name}};
  json["kernels"] = Json::Items{};
  for (const ServingKernel& kernel : checks.kernels)
    json["kernels"].push_back({{"format", format_name(kernel.format)},
                               {"M", kernel.m},
                               {"kernel", kernel.kernel},
                               {"probe", kernel.probe},
                               {"pipeline", kernel.pipeline},
                               {"refused", kernel.refused}});
  json["messages"] = checks.messages;
  json["failure"] = checks.failure;
  return json;
}

}  // namespace metal_marlin::tools
