#include "timing_roofline.h"

#include <algorithm>
#include <limits>

#include "tools/roofline.h"

namespace timing {
namespace {

double operations_of(const ProductResult& result) {
  return 2.0 * static_cast<double>(result.m * result.shape.n * result.shape.k);
}
double bytes_of(const ProductResult& result) { return static_cast<double>(packed_bytes(result.shape, result.format)); }

}  // namespace

std::string roofline_of(const Setting& setting, std::span<const ProductResult> results) {
  namespace tools = metal_marlin::tools;
  tools::Roofline roofline{};
  roofline.title = setting.device + ": products against the device's limits";
  roofline.subtitle = "driver " + setting.driver + ", " + temperature_of(setting) + "; limits measured in the same run";
  double dense_rate = 0;
  for (const ProductResult& result : results) {
    roofline.read_rate = std::max(roofline.read_rate, 1e6 * bytes_of(result) / result.race.read_us);
    if (result.race.cublas) dense_rate = std::max(dense_rate, 1e6 * operations_of(result) / result.race.cublas->us);
  }
  if (dense_rate > 0) roofline.peaks.emplace_back("cuBLAS, 16 bits", dense_rate);
  for (const ProductResult& result : results) {
    const double intensity = operations_of(result) / bytes_of(result), rate = 1e6 * operations_of(result) / result.race.us;
    const double peak = dense_rate > 0 ? dense_rate : std::numeric_limits<double>::infinity();
    const double fraction = rate / std::min(intensity * roofline.read_rate, peak);
    roofline.points.push_back({result.format.name, true, result.m, intensity, rate, fraction});
  }
  return tools::render_roofline(roofline);
}

}  // namespace timing
