// Calls of air.* functions that concern other lanes or memory become calls of library/library.cc, each with its site.
#pragma once

#include <llvm/IR/Module.h>

#include <string>
#include <vector>

namespace metal_on_cpu::air {

/// Gives every instruction a place, "KERNEL.air" and its number in the module as read, unless the module has debug information.
void number_instructions(llvm::Module& module, const std::string& kernel);

/// Precondition: `library` has not been linked yet. Returns the names of air.* functions that stay without a body.
std::vector<std::string> call_collectives(llvm::Module& module, const llvm::Module& library);

/// Threadgroup variables become storage of the runtime, asked for at the head of each function that names them.
void place_threadgroup_variables(llvm::Module& module, const std::vector<std::string>& names);

}  // namespace metal_on_cpu::air
