// Bodies of the air.* functions that need neither other lanes nor memory, as instructions.
#pragma once

#include <llvm/IR/Module.h>

#include "options.h"

namespace metal_on_cpu::air {

/// Replaces every call of a known function, and llvm.fmuladd by one or two roundings.
void expand_pure(llvm::Module& module, const Contraction& contraction);

}  // namespace metal_on_cpu::air
