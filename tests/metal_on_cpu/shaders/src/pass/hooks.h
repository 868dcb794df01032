// The sanitizers' hooks under names of our own, so that images also run in a process that is itself built with sanitizers.
#pragma once

#include <llvm/IR/Module.h>

namespace metal_on_cpu::pass {

/// Renames __asan_* and __ubsan_*. Hooks of loads and stores get the alignment that the access relies on in their names.
void rename_hooks(llvm::Module& module);

/// Has copies to and from what is no variable of a thread tell their alignment, which the sanitizer's hooks do not know.
void announce_alignments(llvm::Function& function);

}  // namespace metal_on_cpu::pass
