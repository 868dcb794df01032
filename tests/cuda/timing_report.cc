#include "timing_report.h"

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <stdexcept>
#include <utility>

#include "metal_marlin/metal_marlin.hpp"

namespace timing {
namespace {

using metal_marlin::tools::Json;

std::string today() {
  const std::time_t now = std::time(nullptr);
  char text[32] = {};
  std::strftime(text, sizeof text, "%Y-%m-%d", std::localtime(&now));
  return text;
}

const char* name_of(marlin_dtype activations) { return activations == MARLIN_F16 ? "f16" : "bf16"; }

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

/// The median of numerator[i] over denominator[i].
double median_ratio(const std::vector<double>& numerator, const std::vector<double>& denominator) {
  std::vector<double> ratios;
  for (size_t i = 0; i < numerator.size(); ++i) ratios.push_back(numerator[i] / denominator[i]);
  return median(ratios);
}

std::string text_of(const Field& field) {
  if (field.value == Json()) return "-";
  if (field.value.is_string()) return field.value.text();
  std::string text;
  if (field.value.is_object()) {
    for (const auto& [key, value] : field.value.members()) text += (text.empty() ? "" : " ") + value.text();
    return text;
  }
  char number[32] = {};
  std::snprintf(number, sizeof number, "%.*f", field.decimals, field.value.number());
  return number;
}

void print_cell(int width, const std::string& text) { std::printf("%*s ", width, text.c_str()); }

}  // namespace

Report::Report(Setting setting, const std::string& json, const std::string& cublas, const std::string& text)
    : setting_(std::move(setting)), cublas_(cublas) {
  std::printf("metal-marlin on %s, driver %s, cuBLAS %s, %s\n", setting_.device.c_str(), setting_.driver.c_str(),
              cublas_.c_str(), today().c_str());
  std::printf(
      "%s %s activations and results. Medians of %d replays, back to back; the graphs of a line take turns.\n\n"
      "  us        a product, or all products of the line\n"
      "  read      a kernel that only reads as many bytes as the weights have;  /read: us over it, 1 at best\n"
      "  cuBLAS    the same with 16-bit weights;  speed-up: it over us\n"
      "  worst     the largest error over its bound, of some elements; above 1 the product is wrong\n\n",
      text.c_str(), name_of(setting_.activations), setting_.rounds);
  if (json.empty()) return;
  json_.open(json);
  if (!json_) throw std::runtime_error(json + ": cannot be written");
}

void Report::print(const Fields& fields) {
  for (const Field& field : fields)
    if (field.head != nullptr) print_cell(field.width, text_of(field));
}

void Report::add(const Fields& place, const std::function<Measured()>& measure) {
  Fields line = place;
  try {
    const auto [fields, verdict] = measure();
    line.insert(line.end(), fields.begin(), fields.end());
    line.insert(
        line.end(),
        {{"right", verdict.is_right()}, {"worst_error_over_bound", verdict.worst(), "worst", 7, 3}, {"nmse", verdict.nmse()}});
    right_ = right_ && verdict.is_right();
  } catch (const metal_marlin::error& e) {
    if (e.status() != MARLIN_E_UNSUPPORTED) throw;
    right_ = false;
    print(place);
    std::printf(" not served: %s\n", e.what());
    std::fflush(stdout);
    return;
  }
  for (const Field& field : line)
    if (!has_heads_ && field.head != nullptr) print_cell(field.width, field.head);
  if (!std::exchange(has_heads_, true)) std::printf("\n");
  print(line);
  std::printf("\n");
  std::fflush(stdout);
  if (!json_.is_open()) return;
  Json record;
  record["device"] = setting_.device;
  record["driver"] = setting_.driver;
  record["activations"] = name_of(setting_.activations);
  record["compute"] = setting_.compute.name;
  record["rounds"] = setting_.rounds;
  for (const Field& field : line) record[field.key] = field.value;
  json_ << record.dump() << std::endl;
}

Fields Report::times(const std::vector<std::vector<double>>& times) const {
  Json name, us, speedup;
  if (times.size() > 2) {
    name = cublas_;
    us = median(times[2]);
    speedup = median_ratio(times[2], times[0]);
  }
  return {{"us", median(times[0]), "us", 9, 2},
          {"read_us", median(times[1]), "read", 9, 2},
          {"times_read", median_ratio(times[0], times[1]), "/read", 6, 2},
          {"cublas", name},
          {"cublas_us", us, "cuBLAS", 9, 2},
          {"speedup_over_cublas", speedup, "speed-up", 8, 2}};
}

Field tflops_of(double multiplications, const Fields& times) {
  return {"tflops", 2e-6 * multiplications / times.front().value.number(), "TFLOP/s", 8, 1};
}

}  // namespace timing
