// What each air.* function has to give, computed in long double and in 64-bit integers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "wheel_intrinsics.h"

namespace metal_on_cpu::air {

/// An IR type: "float", "<4 x half>" is 4 of "half".
struct Type {
  std::string element;
  int count = 1;
};
Type parse_type(const std::string& text);

struct Prototype {
  std::string result;
  std::vector<std::string> arguments;
};
/// "float (float, i16)"
Prototype parse_prototype(const std::string& text);

/// The lanes of one simdgroup, with where their operands and results lie.
struct Simdgroup {
  const std::byte* operands[32][5];
  const std::byte* results[32];
};

/// Memory that matrices are loaded from and stored to, of floats in rows of kStride; atomics add at kAtomicOffset.
constexpr size_t kStride = 16, kStoreRow = 64, kAtomicOffset = 8000, kMemoryBytes = 8192;
float matrix_value(size_t row, size_t column);

/// Writes the operands of one lane; `at(k)` is where operand k lies.
void fill_operands(const Intrinsic& f, size_t row, std::mt19937_64& random, const std::function<std::byte*(size_t)>& at);
/// Empty, or what differs.
std::string check(const Intrinsic& f, const Simdgroup& lanes);

}  // namespace metal_on_cpu::air
