// Machine code in the run of clang that optimizes: to start clang again for it takes longer than to make it.
#pragma once

#include <llvm/IR/Module.h>

namespace metal_on_cpu::pass {

/// Makes the module an object as clang -O0 -fPIC does, in the quickest way: the checks take the time of a checked run, and most
/// of them are short. Writes it to the standard output and ends the process: there is nothing more to do.
[[noreturn]] void write_object_and_exit(llvm::Module& module);

}  // namespace metal_on_cpu::pass
