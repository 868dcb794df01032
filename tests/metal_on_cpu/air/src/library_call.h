// Calls of the functions in library/library.cc. Operands and result go through memory, so that no calling convention of small,
// half-precision or vector types matters; the functions are inlined.
#pragma once

#include <llvm/IR/IRBuilder.h>

#include <string>

namespace metal_on_cpu::air {

/// `arguments`: operands, handed over by address. A simdgroup matrix (64 elements) is handed over as the two that a lane owns;
/// an i1 as a byte. `by_value`: further arguments, as they are. Returns the result, or nullptr when `type` is void.
llvm::Value* call_library(llvm::IRBuilder<>& b, const std::string& name, llvm::Type* type,
                          llvm::ArrayRef<llvm::Value*> arguments, llvm::ArrayRef<llvm::Value*> by_value = {});

}  // namespace metal_on_cpu::air
