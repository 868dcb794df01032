// Uses of variables of a thread that have no value. In two steps, one on each side of the optimizer:
// before it, what a variable without an initializer holds becomes a byte that the optimizer knows nothing about, so that it
// keeps whatever still depends on it; behind it, a shadow (as MemorySanitizer has, but only for what is left, in shader after
// shader nothing) follows these bytes to where a program's behavior depends on them.
#pragma once

#include <llvm/IR/Function.h>

namespace metal_on_cpu::pass {

/// Replaces the values that -ftrivial-auto-var-init gives.
void mark_uninitialized(llvm::Function& function);
/// Makes branches on, addresses from, and stores to device and threadgroup memory of such bytes call
/// msl_uninitialized_use(bool). `is_kernel`: pointers among its arguments are no variables of a thread.
void report_uninitialized(llvm::Function& function, bool is_kernel);

}  // namespace metal_on_cpu::pass
