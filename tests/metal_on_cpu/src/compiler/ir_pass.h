// A pass over the text of LLVM IR, between clang's optimiser and its code generator: counts what each basic block computes and
// makes it report itself to the runtime; finds what only the call graph shows; gives the sanitizers' hooks names of our own, so
// that images also run in a process that is itself built with sanitizers.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "token.h"

namespace metal_on_cpu {

/// Classes of arithmetic operations.
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
const char* operation_name(int operation);

using OperationCounts = std::array<uint32_t, kOperationCount>;

struct InstrumentedIr {
  std::string text;
  std::vector<OperationCounts> blocks;  // by block number; components of vectors count one each
  std::vector<Diagnostic> errors;       // recursion, initialisers that need code at load time
};

InstrumentedIr instrument(const std::string& ir);

}  // namespace metal_on_cpu
