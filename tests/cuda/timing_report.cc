#include "timing_report.h"

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <stdexcept>
#include <utility>

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

/// `beside`: what is raced, or nothing.
void print_title(const Setting& setting, const std::string& beside = "") {
  std::printf("metal-marlin on %s, driver %s, %s%s\n", setting.device.c_str(), setting.driver.c_str(), beside.c_str(),
              today().c_str());
}

std::string replays_text(const Setting& setting) {
  return "Medians of " + std::to_string(setting.rounds) + " replays, " +
         (setting.cool ? "cool: each after 25 ms without work" : "hot: back to back") + "; the graphs of a line take turns.";
}

std::string cublas_text(const RaceTimes& race) {
  char text[32] = "        -        -";
  if (race.cublas) std::snprintf(text, sizeof text, "%9.2f %8.2f", race.cublas->us, race.cublas->speedup);
  return text;
}

void print_place(const Shape& shape, const Format& format, int64_t m) {
  std::printf("%-8s %6lld -> %6lld  %-6s %5lld", shape.name, static_cast<long long>(shape.k), static_cast<long long>(shape.n),
              format.name, static_cast<long long>(m));
}

void print_place(const ExpertPlace& place) {
  std::printf("%-8s %-6s %4g %6lld", place.products, place.format.name, place.skew, static_cast<long long>(place.tokens));
}

void put_format(Json& record, const Format& format) {
  record["format"] = format.name;
  record["group"] = format.group;
}

void put_kernels(Json& record, const KernelNames& kernels) {
  for (const auto& [kind, kernel] : kernels) record["kernels"][kind] = kernel;
}

void put_times(Json& record, const RaceTimes& race) {
  record["us"] = race.us;
  record["read_us"] = race.read_us;
  record["times_read"] = race.times_read;
}

void put_cublas(Json& record, const RaceTimes& race, const std::string& cublas) {
  record["cublas"] = nullptr;
  record["cublas_us"] = nullptr;
  record["speedup_over_cublas"] = nullptr;
  if (!race.cublas) return;
  record["cublas"] = cublas;
  record["cublas_us"] = race.cublas->us;
  record["speedup_over_cublas"] = race.cublas->speedup;
}

}  // namespace

const char* temperature_of(const Setting& setting) { return setting.cool ? "cool" : "hot"; }

Report::Report(Setting setting, const std::string& json) : setting_(std::move(setting)) {
  if (json.empty()) return;
  json_.open(json);
  if (!json_) throw std::runtime_error(json + ": cannot be written");
}

void Report::write(const Json& result, const Verdict& verdict) {
  std::fflush(stdout);
  right_ = right_ && verdict.is_right();
  if (!json_.is_open()) return;
  Json record;
  record["device"] = setting_.device;
  record["driver"] = setting_.driver;
  record["activations"] = name_of(setting_.activations);
  record["compute"] = setting_.compute == MARLIN_COMPUTE_FP8   ? "fp8"
                      : setting_.compute == MARLIN_COMPUTE_W16 ? "w16"
                                                               : "default";
  record["temperature"] = temperature_of(setting_);
  record["rounds"] = setting_.rounds;
  for (const auto& [key, value] : result.members()) record[key] = value;
  record["right"] = verdict.is_right();
  record["worst_error_over_bound"] = verdict.worst();
  record["nmse"] = verdict.nmse();
  json_ << record.dump() << std::endl;
}

void Report::refuse(const std::string& why) {
  std::printf("  not served: %s\n", why.c_str());
  std::fflush(stdout);
  right_ = false;
}

RaceTimes race_of(const std::vector<std::vector<double>>& times) {
  RaceTimes race{median(times[0]), median(times[1]), median_ratio(times[0], times[1]), {}};
  if (times.size() > 2) race.cublas = {median(times[2]), median_ratio(times[2], times[0])};
  return race;
}

double ProductResult::tflops() const { return 2e-6 * static_cast<double>(m * shape.n * shape.k) / race.us; }

ProductReport::ProductReport(Setting of, const std::string& json, std::string cublas)
    : Report(std::move(of), json), cublas_(std::move(cublas)) {
  print_title(setting(), "cuBLAS " + cublas_ + ", ");
  std::printf(
      "C[M, N] = A[M, K] W[N, K]^T, %s activations and results. Each product of a graph has weights of its own (more than 750 "
      "MB\n"
      "in all). %s\n\n"
      "  us        a product with quantized weights\n"
      "  read      a kernel that only reads as many bytes as the weights have;  /read: us over it, 1 at best\n"
      "  cuBLAS    the product with 16-bit weights;  speed-up: it over us\n"
      "  worst     the largest error over its bound, of up to 64 x 64 elements; above 1 the product is wrong\n\n",
      name_of(setting().activations), replays_text(setting()).c_str());
  std::printf("%-8s %6s -> %6s  %-6s %5s %9s %9s %6s %9s %8s %8s %7s  %s\n", "shape", "K", "N", "format", "M", "us", "read",
              "/read", "cuBLAS", "speed-up", "TFLOP/s", "worst", "kernel");
  std::fflush(stdout);
}

void ProductReport::add(const ProductResult& result) {
  const auto& [shape, format, m, kernel, race, verdict] = result;
  print_place(shape, format, m);
  std::printf(" %9.2f %9.2f %6.2f %s %8.1f %7.3f  %s\n", race.us, race.read_us, race.times_read, cublas_text(race).c_str(),
              result.tflops(), verdict.worst(), kernel.c_str());
  Json record;
  record["shape"] = shape.name;
  record["k"] = shape.k;
  record["n"] = shape.n;
  put_format(record, format);
  record["m"] = m;
  record["kernel"] = kernel;
  put_times(record, race);
  put_cublas(record, race, cublas_);
  record["tflops"] = result.tflops();
  write(record, verdict);
}

void ProductReport::refuse(const Shape& shape, const Format& format, int64_t m, const std::string& why) {
  print_place(shape, format, m);
  Report::refuse(why);
}

DecoderReport::DecoderReport(Setting of, const std::string& json, std::string cublas)
    : Report(std::move(of), json), cublas_(std::move(cublas)) {
  print_title(setting(), "cuBLAS " + cublas_ + ", ");
  std::printf(
      "All products of a decoder for M tokens: 32 layers of qkv 4096 -> 12288, out 4096 -> 4096, gate_up 4096 -> 22016 with\n"
      "SwiGLU and down 11008 -> 4096; head 4096 -> 32000. %s activations and results. Each layer has weights of its own.\n"
      "%s\n\n"
      "  us        all products, a graph of 129;  token/s: M in this time\n"
      "  GB        the weights, of which a step reads all\n"
      "  read      a kernel that only reads as many bytes;  /read: us over it, 1 at best\n"
      "  cuBLAS    the same products with 16-bit weights, without SwiGLU;  speed-up: it over us\n"
      "  worst     the largest error over its bound, of up to 64 x 64 elements of the last product of each kind\n\n",
      name_of(setting().activations), replays_text(setting()).c_str());
  std::printf("%-6s %5s %9s %9s %6s %9s %6s %9s %8s %8s %7s\n", "format", "M", "us", "token/s", "GB", "read", "/read", "cuBLAS",
              "speed-up", "TFLOP/s", "worst");
  std::fflush(stdout);
}

void DecoderReport::add(const DecoderResult& result) {
  const auto& [format, m, bytes, weights, kernels, race, verdict] = result;
  std::printf("%-6s %5lld %9.1f %9.1f %6.2f %9.1f %6.2f %s %8.1f %7.3f\n", format.name, static_cast<long long>(m), race.us,
              result.tokens_per_second(), 1e-9 * static_cast<double>(bytes), race.read_us, race.times_read,
              cublas_text(race).c_str(), result.tflops(), verdict.worst());
  Json record;
  record["model"] = "decoder";
  put_format(record, format);
  record["m"] = m;
  put_kernels(record, kernels);
  put_times(record, race);
  put_cublas(record, race, cublas_);
  record["tokens_per_second"] = result.tokens_per_second();
  record["weight_bytes"] = bytes;
  record["tflops"] = result.tflops();
  write(record, verdict);
}

void DecoderReport::refuse(const Format& format, int64_t m, const std::string& why) {
  std::printf("%-6s %5lld", format.name, static_cast<long long>(m));
  Report::refuse(why);
}

ExpertReport::ExpertReport(Setting of, const std::string& json, int64_t experts, int64_t top_k)
    : Report(std::move(of), json), experts_(experts), top_k_(top_k) {
  print_title(setting());
  std::printf(
      "Mixtures of %lld experts, of which each token has %lld; %s activations and results.\n"
      "  single    2880 -> 2880, a row of C for each expert of a token\n"
      "  gpt-oss   gate_up 2880 -> 5760 with SWIGLU_OAI, and down 2880 -> 2880, which sums the experts of a token\n"
      "The tokens of each product of a graph are routed anew, to one of four stacks of experts in turn. The r-th most "
      "frequent\n"
      "expert has a weight of 1 / r^skew.\n"
      "%s\n\n"
      "  us        the one product, or both\n"
      "  touched   different experts of a product's tokens, in the mean;  MB: their weights\n"
      "  read      a kernel that only reads as many bytes;  /read: us over it, 1 at best\n"
      "  worst     the largest error over its bound, of up to 16 x 16 elements; above 1 the product is wrong\n\n",
      static_cast<long long>(experts_), static_cast<long long>(top_k_), name_of(setting().activations),
      replays_text(setting()).c_str());
  std::printf("%-8s %-6s %4s %6s %7s %7s %9s %9s %6s %8s %7s  %s\n", "products", "format", "skew", "tokens", "touched", "MB",
              "us", "read", "/read", "TFLOP/s", "worst", "kernels");
  std::fflush(stdout);
}

void ExpertReport::add(const ExpertResult& result) {
  const auto& [place, distinct, bytes, weights, kernels, race, verdict] = result;
  const double all_bytes = distinct * static_cast<double>(bytes);
  const double tflops = 2e-6 * static_cast<double>(place.tokens * top_k_) * static_cast<double>(weights) / race.us;
  print_place(place);
  std::printf(" %7.1f %7.1f %9.2f %9.2f %6.2f %8.1f %7.3f ", distinct, 1e-6 * all_bytes, race.us, race.read_us, race.times_read,
              tflops, verdict.worst());
  for (const auto& [kind, kernel] : kernels) std::printf(" %s", kernel.c_str());
  std::printf("\n");
  Json record;
  record["model"] = "experts";
  record["products"] = place.products;
  put_format(record, place.format);
  record["experts"] = experts_;
  record["top_k"] = top_k_;
  record["skew"] = place.skew;
  record["tokens"] = place.tokens;
  record["distinct_experts"] = distinct;
  record["weight_bytes"] = all_bytes;
  put_kernels(record, kernels);
  put_times(record, race);
  record["tflops"] = tflops;
  write(record, verdict);
}

void ExpertReport::refuse(const ExpertPlace& place, const std::string& why) {
  print_place(place);
  Report::refuse(why);
}

}  // namespace timing
