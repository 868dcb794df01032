// The results of a mode: a table for readers and, if asked for, a file of JSON records, both line by line.
#pragma once

#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "metal_marlin/metal_marlin.h"
#include "timing_check.h"
#include "tools/json.h"

namespace timing {

/// What holds for all lines.
struct Setting {
  std::string device, driver;
  marlin_dtype activations = MARLIN_BF16;
  Compute compute;
  int rounds = 0;
};

/// A number or a word of a line.
struct Field {
  const char* key;  ///< of the record
  metal_marlin::tools::Json value;
  const char* head = nullptr;  ///< of the table's column, if it has one
  int width = 0;               ///< of the column; negative: text begins at its left
  int decimals = 0;
};
using Fields = std::vector<Field>;
struct Measured {
  Fields fields;
  Verdict verdict;
};

class Report {
 public:
  /// Prints the head, in which `text` says what the products are. No file of JSON if `json` is empty.
  Report(Setting setting, const std::string& json, const std::string& cublas, const std::string& text);
  /// A line: its place, and what measure() gives. A product that the library refuses, as one that METAL_MARLIN_KERNEL's kernel
  /// does not serve, does not end the race.
  void add(const Fields& place, const std::function<Measured()>& measure);
  /// Whether all products so far ran and were right.
  bool is_right() const { return right_; }
  /// Medians of times, and of the ratios of times in one round: of our graph, of one that only reads and, if there is a third,
  /// of cuBLAS's: [graph][round].
  Fields times(const std::vector<std::vector<double>>& times) const;

 private:
  void print(const Fields& fields);

  const Setting setting_;
  const std::string cublas_;
  std::ofstream json_;
  bool right_ = true, has_heads_ = false;
};

/// The rate of this many multiplications in the time of fields that times() gave.
Field tflops_of(double multiplications, const Fields& times);

}  // namespace timing
