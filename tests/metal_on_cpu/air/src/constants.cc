#include "constants.h"

#include <llvm/ADT/STLExtras.h>
#include <llvm/Analysis/TargetLibraryInfo.h>
#include <llvm/IR/Constants.h>
#include <llvm/TargetParser/Triple.h>
#include <llvm/Transforms/Utils/Evaluator.h>

namespace metal_on_cpu::air {
namespace {

constexpr const char* kInitializers = "air.static_init";  // the section of code that runs before the kernel

llvm::Constant* constant_of(const ConstantValue& value, llvm::Type* type) {
  return std::visit(
      [&](auto v) -> llvm::Constant* {
        using V = decltype(v);
        if (type->isIntegerTy()) {
          if constexpr (std::is_same_v<V, double>)
            return nullptr;
          else
            return llvm::ConstantInt::get(type, static_cast<uint64_t>(v), std::is_same_v<V, int64_t>);
        }
        if (type->isFloatingPointTy()) return llvm::ConstantFP::get(type, static_cast<double>(v));
        return nullptr;
      },
      value);
}

const ConstantValue* value_of(const FunctionConstant& c, const ConvertOptions& options) {
  if (const auto found = options.constants.find(c.index); found != options.constants.end()) return &found->second;
  const auto found = options.named_constants.find(c.name);
  return found == options.named_constants.end() ? nullptr : &found->second;
}

Result<bool> give_value(llvm::Module& module, const FunctionConstant& c, const ConvertOptions& options) {
  const std::string name = "function constant '" + c.name + "' (" + std::to_string(c.index) + ")";
  llvm::GlobalVariable* variable = module.getGlobalVariable(c.global, true);
  if (!variable) return Error{name + " has no variable"};
  const ConstantValue* value = value_of(c, options);
  if (!value && !options.absent_constants_are_zero) return Error{name + " of type " + c.type + " has no value"};
  llvm::Type* type = variable->getValueType();
  llvm::Constant* initial = value ? constant_of(*value, type) : llvm::Constant::getNullValue(type);
  if (!initial) return Error{name + " is of type " + c.type + "; the value given is of another"};
  variable->setInitializer(initial);
  variable->setExternallyInitialized(false);
  variable->setConstant(true);
  return true;
}

// Written by the initializers alone: from now on it has this value.
void fix(llvm::GlobalVariable& variable, llvm::Constant* value) {
  variable.setInitializer(value);
  variable.setConstant(true);
}

Result<bool> run_initializers(llvm::Module& module) {
  const llvm::TargetLibraryInfoImpl implementation{llvm::Triple(module.getTargetTriple())};
  const llvm::TargetLibraryInfo library(implementation);
  for (llvm::Function& f : llvm::make_early_inc_range(module)) {
    if (f.isDeclaration() || f.getSection() != kInitializers) continue;
    llvm::Evaluator evaluator(module.getDataLayout(), &library);
    llvm::Constant* nothing = nullptr;
    if (!evaluator.EvaluateFunction(&f, nothing, llvm::SmallVector<llvm::Constant*, 0>())) {
      return Error{f.getName().str() + ": code that runs before the kernel cannot be evaluated"};
    }
    const auto changed = evaluator.getMutatedInitializers();
    f.eraseFromParent();
    for (const auto& [variable, value] : changed) fix(*variable, value);
  }
  return true;
}

}  // namespace

Result<bool> specialize(llvm::Module& module, const Signature& signature, const ConvertOptions& options) {
  for (const FunctionConstant& c : signature.constants) {
    if (auto given = give_value(module, c, options); !given) return given;
  }
  if (llvm::GlobalVariable* list = module.getGlobalVariable("llvm.global_ctors")) list->eraseFromParent();
  return run_initializers(module);
}

bool enabled(const llvm::Module& module, const Argument& argument) {
  if (argument.predicate.empty()) return true;
  const llvm::GlobalVariable* predicate = module.getGlobalVariable(argument.predicate, true);
  return !predicate || !predicate->hasInitializer() || !predicate->getInitializer()->isNullValue();
}

}  // namespace metal_on_cpu::air
