// Classes of arithmetic operations: what the pass counts in each basic block, and the report names.
#pragma once

#include <array>
#include <cstdint>

namespace metal_on_cpu {

enum Operation : uint8_t {
  kFloatAdd,  // additions and subtractions
  kFloatMultiply,
  kFloatFma,
  kFloatDivide,   // and square roots
  kFloatSpecial,  // exp, log, sin, ...
  kIntegerAdd,
  kIntegerMultiply,
  kIntegerDivide,  // and remainders
  kBitwise,
  kShift,
  kCompare,  // and minima, maxima
  kSelect,
  kConvert,
  kOperationCount
};

constexpr const char* kOperationNames[kOperationCount] = {
    "float add",      "float multiply", "float fma", "float divide", "float special", "integer add", "integer multiply",
    "integer divide", "bitwise",        "shift",     "compare",      "select",        "convert"};

using OperationCounts = std::array<uint32_t, kOperationCount>;

}  // namespace metal_on_cpu
