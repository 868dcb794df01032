// The results of a mode: a table for readers and, if asked for, a file of JSON records, both line by line.
#pragma once

#include <cstdint>
#include <fstream>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "metal_marlin/metal_marlin.h"
#include "timing_check.h"
#include "timing_operands.h"

namespace timing {

/// What holds for all lines.
struct Setting {
  std::string device, driver;
  marlin_dtype activations = MARLIN_BF16;
  bool cool = false;
  int rounds = 0;
};

class Records {
 public:
  /// No file if `path` is empty.
  Records(Setting setting, const std::string& path);
  const Setting& setting() const { return setting_; }
  /// A line: the setting, and `result`.
  void write(const nlohmann::ordered_json& result);

 private:
  Setting setting_;
  std::ofstream file_;
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

class ProductReport {
 public:
  /// Prints the head.
  ProductReport(Records records, std::string cublas);
  void add(const ProductResult& result);
  /// A product that the library refuses.
  void refuse(const Shape& shape, const Format& format, int64_t m, const std::string& why) const;

 private:
  Records records_;
  const std::string cublas_;
};

}  // namespace timing
