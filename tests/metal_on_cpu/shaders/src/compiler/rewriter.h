// Turns the tokens of a preprocessed shader into host C++ (to compile) or into C++ with address spaces (to check only).
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "../../include/metal_on_cpu/metal_on_cpu.h"
#include "token.h"

namespace metal_on_cpu {

/// Values of function constants as C++ literals, by index.
using ConstantLiterals = std::map<uint32_t, std::string>;

enum class Rewriting {
  kCompile,      // address spaces vanish, kernels are registered, threadgroup variables live in the runtime
  kCompileLate,  // the same for CompileOptions::late_constants
  kCheck,        // address spaces stay, for clang's own type checks
};

struct Rewritten {
  std::string text;
  std::vector<Diagnostic> errors;
  std::vector<std::string> kernels;  // names as dispatched
  std::vector<uint32_t> constants;   // indices of function constants
  /// "S threadgroup": class S has member functions for objects there. Only where kCheck took the words away.
  std::set<std::string> member_spaces;
};

/// Which of a source's kernels an image holds, by their numbers in Rewritten::kernels.
struct KernelRange {
  size_t first = 0, last = SIZE_MAX;
  bool contains(size_t i) const { return i >= first && i < last; }
};

Rewritten rewrite(TokenStream stream, Rewriting mode, const ConstantLiterals& constants, KernelRange range = {});

}  // namespace metal_on_cpu
