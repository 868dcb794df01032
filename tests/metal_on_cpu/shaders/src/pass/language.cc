#include "language.h"

#include <llvm/ADT/DenseMap.h>
#include <llvm/ADT/SmallPtrSet.h>
#include <llvm/Demangle/Demangle.h>
#include <llvm/IR/DebugInfoMetadata.h>
#include <llvm/IR/InstIterator.h>
#include <llvm/IR/Instructions.h>

namespace metal_on_cpu::pass {
namespace {

// Apple's compiler takes a function that ends by calling itself.
bool ends_function(const llvm::CallInst& call) {
  const llvm::Instruction* next = call.getNextNonDebugInstruction();
  if (const auto* branch = llvm::dyn_cast_or_null<llvm::BranchInst>(next); branch && branch->isUnconditional())
    next = branch->getSuccessor(0)->getFirstNonPHIOrDbgOrLifetime();
  return llvm::isa_and_nonnull<llvm::ReturnInst>(next);
}

using Callees = llvm::SmallPtrSet<const llvm::Function*, 8>;

Callees callees_of(const llvm::Function& f, bool tail_calls_too) {
  Callees all;
  for (const llvm::Instruction& i : llvm::instructions(f)) {
    const auto* call = llvm::dyn_cast<llvm::CallInst>(&i);
    const llvm::Function* callee = call ? call->getCalledFunction() : nullptr;
    if (!callee || callee->isDeclaration() || (callee == &f && !tail_calls_too && ends_function(*call))) continue;
    all.insert(callee);
  }
  return all;
}

std::string place(const llvm::Function& f) {
  const llvm::DISubprogram* s = f.getSubprogram();
  return s ? s->getFilename().str() + ":" + std::to_string(s->getLine()) + ":1: " : std::string();
}

}  // namespace

std::vector<const llvm::Function*> recursive_functions(const llvm::Module& module, bool tail_calls_too) {
  llvm::DenseMap<const llvm::Function*, Callees> calls;
  for (const llvm::Function& f : module) {
    if (!f.isDeclaration()) calls[&f] = callees_of(f, tail_calls_too);
  }
  std::vector<const llvm::Function*> found;
  for (const llvm::Function& f : module) {
    if (f.isDeclaration()) continue;
    Callees reached;
    llvm::SmallVector<const llvm::Function*> open(calls[&f].begin(), calls[&f].end());
    while (!open.empty()) {
      const llvm::Function* next = open.pop_back_val();
      if (reached.insert(next).second) open.append(calls[next].begin(), calls[next].end());
    }
    if (reached.contains(&f)) found.push_back(&f);
  }
  return found;
}

std::vector<std::string> language_errors(const llvm::Module& module) {
  std::vector<std::string> errors;
  for (const llvm::Function* f : recursive_functions(module, false)) {
    errors.push_back(place(*f) + "error: '" + llvm::demangle(f->getName()) +
                     "' calls itself: recursion is not supported in the Metal Shading Language");
  }
  if (const auto* code = module.getNamedGlobal("llvm.global_ctors"); code && !code->isDeclaration()) {
    errors.emplace_back(
        "error: a program-scope variable has no constant initializer (it may use a function constant without a value)");
  }
  return errors;
}

}  // namespace metal_on_cpu::pass
