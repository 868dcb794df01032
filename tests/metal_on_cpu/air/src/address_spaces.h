// The host has one address space: device (1), constant (2) and threadgroup (3) pointers become plain ones.
#pragma once

#include <llvm/IR/Module.h>

#include <string>
#include <vector>

namespace metal_on_cpu::air {

/// Rewrites the module in place. Returns the names of the variables that were in threadgroup memory. No constant expression
/// over a global variable is left in a function.
std::vector<std::string> drop_address_spaces(llvm::Module& module);

}  // namespace metal_on_cpu::air
