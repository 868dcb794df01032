// What MSL forbids and only whole programs show.
#pragma once

#include <llvm/IR/Module.h>

#include <string>
#include <vector>

namespace metal_on_cpu::pass {

/// Functions that call themselves, but for those that end by it, which are loops; initializers that need code at load time.
/// "file:line:column: error: ..." each.
std::vector<std::string> language_errors(const llvm::Module& module);

/// Functions that reach themselves by calls.
std::vector<const llvm::Function*> recursive_functions(const llvm::Module& module, bool tail_calls_too);

}  // namespace metal_on_cpu::pass
