// What the metadata of an AIR module says of its kernel: arguments, function constants, limits.
#pragma once

#include <llvm/IR/Module.h>

#include <metal_on_cpu/result.h>
#include <msl/abi.h>
#include <cstdint>
#include <string>
#include <vector>

namespace metal_on_cpu::air {

struct Argument {
  msl::ParamKind kind = msl::kBufferParam;
  msl::Builtin builtin = msl::kBuiltinCount;
  bool read_only = false;
  int32_t index = 0;  // of buffer(n) or threadgroup(n)
  std::string name;
  std::string predicate;  // the global whose value says whether the argument exists; empty: it does
};

struct FunctionConstant {
  std::string global, type, name;  // type: as in the shader's source, "bool" or "int"
  uint32_t index = 0;
};

struct Signature {
  std::string kernel;
  std::vector<Argument> arguments;
  uint32_t max_threads = 0;  // [[max_total_threads_per_threadgroup(n)]], or 0
  std::vector<FunctionConstant> constants;
};

/// An Error names what has no counterpart here (a texture, two kernels, ...).
Result<Signature> read_signature(const llvm::Module& module);

}  // namespace metal_on_cpu::air
