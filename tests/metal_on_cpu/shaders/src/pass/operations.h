// What each basic block computes, by class.
#pragma once

#include <llvm/IR/BasicBlock.h>

#include "../compiler/operations.h"

namespace metal_on_cpu::pass {

/// Components of vectors count one each; checks (!nosanitize) do not count.
OperationCounts count_operations(const llvm::BasicBlock& block);

}  // namespace metal_on_cpu::pass
