// Activations and results in host memory, and the two 16-bit float types.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "metal_marlin/metal_marlin.h"

namespace metal_marlin::tools {

float from_f16(uint16_t bits);
float from_bf16(uint16_t bits);
/// Round to nearest, ties to even; NaN stays NaN.
uint16_t to_f16(float value);
uint16_t to_bf16(float value);

/// A dense row-major matrix of F32, F16 or BF16.
class HostMatrix {
 public:
  HostMatrix(int64_t rows, int64_t cols, marlin_dtype dtype);
  /// Normally distributed around 0 with deviation 1, rounded to dtype; the same seed gives the same
  /// values everywhere.
  static HostMatrix random(int64_t rows, int64_t cols, marlin_dtype dtype, uint64_t seed);

  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }
  marlin_dtype dtype() const { return dtype_; }
  float at(int64_t row, int64_t col) const;
  void set(int64_t row, int64_t col, float value);
  /// A view of the first `rows` rows; the library may write through it.
  marlin_matrix view(int64_t rows) const;

 private:
  int64_t rows_, cols_;
  marlin_dtype dtype_;
  size_t element_;
  std::vector<std::byte> bytes_;
};

/// A small generator (splitmix64: Steele, Lea, Flood 2014) with one multiply-shift chain per
/// number. Any seed is good.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  /// A number in [0, 1).
  double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }
  /// The sum of 12 uniform numbers less 6. It has deviation 1 and no tail beyond 6, and the same
  /// bits on every platform (it does not use libm).
  float normal() {
    double sum = -6;
    for (int i = 0; i < 12; ++i) sum += uniform();
    return static_cast<float>(sum);
  }

 private:
  uint64_t state_;
};

}  // namespace metal_marlin::tools
