// How a module is converted.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <variant>

namespace metal_on_cpu::air {

/// Whether a * b + c in one expression is rounded once, by the type of its result. The wheel's compiler leaves the choice open
/// for all three; the CPU's half and bfloat arithmetic of the source route rounds twice.
struct Contraction {
  bool f32 = true, f16 = false, bf16 = false;
};

using ConstantValue = std::variant<bool, int64_t, uint64_t, double>;

struct ConvertOptions {
  bool checked = false;  // every access, barrier and collective reports itself to the runtime
  bool flush_to_zero =
      false;  // what the optimizer computes takes and gives float subnormals as zero; the dispatch does the rest
  Contraction contraction;
  std::map<uint32_t, ConstantValue> constants;           // function constants by index
  std::map<std::string, ConstantValue> named_constants;  // and by name
  bool absent_constants_are_zero = false;                // else a constant without a value is an error
};

}  // namespace metal_on_cpu::air
