// Function constants take their values before anything is optimized, as Metal specializes a function.
#pragma once

#include <llvm/IR/Module.h>

#include <metal_on_cpu/result.h>

#include "options.h"
#include "signature.h"

namespace metal_on_cpu::air {

/// Gives the constants their values, and evaluates the code that would run before the kernel: copies of them, and the
/// predicates of optional arguments. Precondition: pure functions have been expanded. An Error names the constant without a
/// value.
Result<bool> specialize(llvm::Module& module, const Signature& signature, const ConvertOptions& options);

/// Whether the argument exists. Precondition: specialize().
bool enabled(const llvm::Module& module, const Argument& argument);

}  // namespace metal_on_cpu::air
