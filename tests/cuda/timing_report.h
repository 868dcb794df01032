// The race's results: a table for readers and, if asked for, a file of JSON records, both line by line.
#pragma once

#include <fstream>
#include <optional>
#include <string>

#include "metal_marlin/metal_marlin.h"
#include "timing_check.h"
#include "timing_operands.h"

namespace timing {

/// What holds for all lines.
struct Setting {
  std::string device, driver, cublas;
  marlin_dtype activations = MARLIN_BF16;
  bool cool = false;
  int rounds = 0;
};

/// Medians of a product's times, and of the ratios of times in one round.
struct Result {
  const Shape& shape;
  const Format& format;
  int64_t m;
  std::string kernel;
  double us, read_us;
  double times_read;  ///< our time over the time of reading
  struct Dense {
    double us;
    double speedup;  ///< its time over ours
  };
  std::optional<Dense> cublas;
  Verdict verdict;

  double tflops() const;
};

class Report {
 public:
  /// Prints the head. No file if `json` is empty.
  Report(Setting setting, const std::string& json);
  void add(const Result& result);
  /// A product that the library refuses.
  void refuse(const Shape& shape, const Format& format, int64_t m, const std::string& why);

 private:
  void write_record(const Result& result);

  const Setting setting_;
  std::ofstream json_;
};

}  // namespace timing
