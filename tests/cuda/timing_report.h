// The results of a mode: a table for readers and, if asked for, a file of JSON records, both line by line.
#pragma once

#include <cstdint>
#include <fstream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "metal_marlin/metal_marlin.h"
#include "timing_check.h"
#include "timing_operands.h"
#include "tools/json.h"

namespace timing {

/// What holds for all lines.
struct Setting {
  std::string device, driver;
  marlin_dtype activations = MARLIN_BF16;
  marlin_compute compute = MARLIN_COMPUTE_DEFAULT;
  bool cool = false;
  int rounds = 0;
};

/// "hot" or "cool".
const char* temperature_of(const Setting& setting);

class Report {
 public:
  /// No file of JSON if `json` is empty.
  Report(Setting setting, const std::string& json);
  /// Whether all products so far ran and were right.
  bool is_right() const { return right_; }
  const Setting& setting() const { return setting_; }

 protected:
  /// A record: the setting, `result`, and the verdict.
  void write(const metal_marlin::tools::Json& result, const Verdict& verdict);
  /// Ends a line of the table: the library refuses the product.
  void refuse(const std::string& why);

 private:
  const Setting setting_;
  std::ofstream json_;
  bool right_ = true;
};

/// Medians of times, and of the ratios of times in one round.
struct RaceTimes {
  double us, read_us;
  double times_read;  ///< our time over the time of reading
  struct Dense {
    double us;
    double speedup;  ///< its time over ours
  };
  std::optional<Dense> cublas;
};
/// Of our graph, of one that only reads and, if there is a third, of cuBLAS's: [graph][round].
RaceTimes race_of(const std::vector<std::vector<double>>& times);

struct ProductResult {
  const Shape& shape;
  const Format& format;
  int64_t m;
  std::string kernel;
  RaceTimes race;
  Verdict verdict;

  double tflops() const;
};

class ProductReport : public Report {
 public:
  /// Prints the head.
  ProductReport(Setting setting, const std::string& json, std::string cublas);
  void add(const ProductResult& result);
  void refuse(const Shape& shape, const Format& format, int64_t m, const std::string& why);

 private:
  const std::string cublas_;
};

/// Of each kind of product: its name, and that of its kernel.
using KernelNames = std::vector<std::pair<std::string, std::string>>;

/// A step of a decoder.
struct DecoderResult {
  const Format& format;
  int64_t m;
  size_t bytes, weights;  ///< that a step reads, and multiplies by
  KernelNames kernels;
  RaceTimes race;
  Verdict verdict;

  double tokens_per_second() const { return 1e6 * static_cast<double>(m) / race.us; }
  double tflops() const { return 2e-6 * static_cast<double>(m) * static_cast<double>(weights) / race.us; }
};

class DecoderReport : public Report {
 public:
  /// Prints the head.
  DecoderReport(Setting setting, const std::string& json, std::string cublas);
  void add(const DecoderResult& result);
  void refuse(const Format& format, int64_t m, const std::string& why);

 private:
  const std::string cublas_;
};

/// A line of a mixture of experts.
struct ExpertPlace {
  const char* products;
  const Format& format;
  double skew;
  int64_t tokens;
};
struct ExpertResult {
  ExpertPlace place;
  double distinct;        ///< experts that a product's tokens have, in the mean
  size_t bytes, weights;  ///< of one expert
  KernelNames kernels;
  RaceTimes race;
  Verdict verdict;
};

class ExpertReport : public Report {
 public:
  /// Prints the head.
  ExpertReport(Setting setting, const std::string& json, int64_t experts, int64_t top_k);
  void add(const ExpertResult& result);
  void refuse(const ExpertPlace& place, const std::string& why);

 private:
  const int64_t experts_, top_k_;
};

}  // namespace timing
