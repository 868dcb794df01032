// The sanitizers' hooks under names of our own, so that images also run in a process that is itself built with sanitizers.
#pragma once

#include <llvm/IR/Module.h>

namespace metal_on_cpu::pass {

/// Renames __asan_* and __ubsan_*. Hooks of loads and stores get the alignment that the access relies on in their names.
void rename_hooks(llvm::Module& module);

}  // namespace metal_on_cpu::pass
