// How the runtime finds the kernel in the image and calls it: an msl::Kernel in the section of kernels.
#pragma once

#include <llvm/IR/Module.h>

#include "signature.h"

namespace metal_on_cpu::air {

/// Adds the kernel's description and the function that hands it its arguments. Precondition: specialize(), address spaces
/// dropped.
void register_kernel(llvm::Module& module, const Signature& signature);

}  // namespace metal_on_cpu::air
