// An estimate of the registers that a thread needs.
#pragma once

#include <llvm/IR/Function.h>

namespace metal_on_cpu::pass {

/// Registers of 32 bits at the point where most values are alive at once, by SSA liveness: pointers and 64-bit numbers take
/// two, vectors their components, numbers of 16 bits and less half a one. Variables that stay in memory count nothing.
uint32_t estimate_registers(const llvm::Function& function);

}  // namespace metal_on_cpu::pass
