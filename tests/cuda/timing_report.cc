#include "timing_report.h"

#include <cstdio>
#include <ctime>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

namespace timing {
namespace {

std::string today() {
  const std::time_t now = std::time(nullptr);
  char text[32] = {};
  std::strftime(text, sizeof text, "%Y-%m-%d", std::localtime(&now));
  return text;
}

const char* name_of(marlin_dtype activations) { return activations == MARLIN_F16 ? "f16" : "bf16"; }

void print_place(const Shape& shape, const Format& format, int64_t m) {
  std::printf("%-8s %6lld -> %6lld  %-6s %5lld", shape.name, static_cast<long long>(shape.k), static_cast<long long>(shape.n),
              format.name, static_cast<long long>(m));
}

}  // namespace

double Result::tflops() const { return 2e-6 * static_cast<double>(m * shape.n * shape.k) / us; }

Report::Report(Setting setting, const std::string& json) : setting_(std::move(setting)) {
  if (!json.empty()) {
    json_.open(json);
    if (!json_) throw std::runtime_error(json + ": cannot be written");
  }
  std::printf(
      "metal-marlin on %s, driver %s, cuBLAS %s, %s\n"
      "C[M, N] = A[M, K] W[N, K]^T, %s activations and results. Each product of a graph has weights of its own (more than 750 "
      "MB\n"
      "in all). Medians of %d replays, %s; the graphs of a line take turns.\n\n"
      "  us        a product with quantized weights\n"
      "  read      a kernel that only reads as many bytes as the weights have;  /read: us over it, 1 at best\n"
      "  cuBLAS    the product with 16-bit weights;  speed-up: it over us\n"
      "  worst     the largest error over its bound, of up to 64 x 64 elements; above 1 the product is wrong\n\n",
      setting_.device.c_str(), setting_.driver.c_str(), setting_.cublas.c_str(), today().c_str(), name_of(setting_.activations),
      setting_.rounds, setting_.cool ? "cool: each after 25 ms without work" : "hot: back to back");
  std::printf("%-8s %6s -> %6s  %-6s %5s %9s %9s %6s %9s %8s %8s %7s  %s\n", "shape", "K", "N", "format", "M", "us", "read",
              "/read", "cuBLAS", "speed-up", "TFLOP/s", "worst", "kernel");
  std::fflush(stdout);
}

void Report::add(const Result& result) {
  char cublas[32] = "        -        -";
  if (result.cublas) std::snprintf(cublas, sizeof cublas, "%9.2f %8.2f", result.cublas->us, result.cublas->speedup);
  print_place(result.shape, result.format, result.m);
  std::printf(" %9.2f %9.2f %6.2f %s %8.1f %7.3f  %s\n", result.us, result.read_us, result.times_read, cublas, result.tflops(),
              result.verdict.worst, result.kernel.c_str());
  std::fflush(stdout);
  if (json_.is_open()) write_record(result);
}

void Report::refuse(const Shape& shape, const Format& format, int64_t m, const std::string& why) {
  print_place(shape, format, m);
  std::printf("  %s\n", why.c_str());
  std::fflush(stdout);
}

void Report::write_record(const Result& result) {
  nlohmann::ordered_json record;
  record["device"] = setting_.device;
  record["driver"] = setting_.driver;
  record["shape"] = result.shape.name;
  record["k"] = result.shape.k;
  record["n"] = result.shape.n;
  record["format"] = result.format.name;
  record["group"] = result.format.group;
  record["m"] = result.m;
  record["activations"] = name_of(setting_.activations);
  record["kernel"] = result.kernel;
  record["us"] = result.us;
  record["read_us"] = result.read_us;
  record["times_read"] = result.times_read;
  record["cublas"] = nullptr;
  record["cublas_us"] = nullptr;
  record["speedup_over_cublas"] = nullptr;
  if (result.cublas) {
    record["cublas"] = setting_.cublas;
    record["cublas_us"] = result.cublas->us;
    record["speedup_over_cublas"] = result.cublas->speedup;
  }
  record["tflops"] = result.tflops();
  record["right"] = result.verdict.is_right();
  record["worst_error_over_bound"] = result.verdict.worst;
  record["nmse"] = result.verdict.nmse;
  record["temperature"] = setting_.cool ? "cool" : "hot";
  record["rounds"] = setting_.rounds;
  json_ << record.dump() << std::endl;
}

}  // namespace timing
