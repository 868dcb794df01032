// Random numbers of a float type, as operands and as the oracle takes them.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "metal_marlin/metal_marlin.h"
#include "reference/oracle.h"

namespace cuda_test {

/// Numbers of a float type, from random ones: the bytes, and what they are.
struct Floats {
  std::vector<uint8_t> bytes;
  std::vector<double> numbers;

  Floats(marlin_dtype type, int64_t count, std::mt19937& random) {
    std::normal_distribution<double> normal;
    for (int64_t i = 0; i < count; ++i) {
      const double x = i % 97 == 5 ? 0x1p-20 * normal(random) : normal(random);
      const auto single = static_cast<float>(x);
      const uint16_t half = type == MARLIN_F16 ? oracle::to_f16(x) : oracle::to_bf16(x);
      const auto* const from =
          type == MARLIN_F32 ? reinterpret_cast<const uint8_t*>(&single) : reinterpret_cast<const uint8_t*>(&half);
      bytes.insert(bytes.end(), from, from + (type == MARLIN_F32 ? 4 : 2));
      numbers.push_back(type == MARLIN_F32 ? single : type == MARLIN_F16 ? oracle::f16(half) : oracle::bf16(half));
    }
  }
  marlin_matrix view(marlin_dtype type, int64_t rows, int64_t columns) {
    return {bytes.data(), 0, rows, columns, 0, type, MARLIN_MEM_HOST};
  }
};

}  // namespace cuda_test
