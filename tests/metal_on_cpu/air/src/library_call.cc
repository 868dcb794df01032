#include "library_call.h"

#include <llvm/IR/Module.h>

namespace metal_on_cpu::air {
namespace {

using llvm::Type;
using llvm::Value;
using Builder = llvm::IRBuilder<>;

constexpr unsigned kMatrixElements = 64, kLaneElements = 2;

Type* type_in_memory(Type* type) {
  if (type->isIntegerTy(1)) return Type::getInt8Ty(type->getContext());
  auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(type);
  if (vector && vector->getNumElements() == kMatrixElements)
    return llvm::FixedVectorType::get(vector->getElementType(), kLaneElements);
  return type;
}

Value* to_memory(Builder& b, Value* value) {
  Type* type = type_in_memory(value->getType());
  if (type == value->getType()) return value;
  if (type->isIntegerTy()) return b.CreateZExt(value, type);
  return b.CreateShuffleVector(value, llvm::ArrayRef<int>{0, 1});
}

Value* from_memory(Builder& b, Value* value, Type* type) {
  if (type == value->getType()) return value;
  if (type->isIntegerTy()) return b.CreateTrunc(value, type);
  llvm::SmallVector<int> mask(kMatrixElements, llvm::PoisonMaskElem);
  mask[0] = 0, mask[1] = 1;
  return b.CreateShuffleVector(value, mask);
}

// A variable of the calling function; its lifetime is the call's, so that calls share stack.
llvm::AllocaInst* variable(Builder& b, Type* type) {
  llvm::BasicBlock& entry = b.GetInsertBlock()->getParent()->getEntryBlock();
  return Builder(&entry, entry.begin()).CreateAlloca(type);
}

}  // namespace

Value* call_library(Builder& b, const std::string& name, Type* type, llvm::ArrayRef<Value*> arguments,
                    llvm::ArrayRef<Value*> by_value) {
  llvm::SmallVector<llvm::AllocaInst*> variables;
  llvm::SmallVector<Value*> operands;
  const auto place = [&](Type* of) {
    llvm::AllocaInst* at = variable(b, of);
    b.CreateLifetimeStart(at);
    variables.push_back(at);
    operands.push_back(at);
    return at;
  };
  llvm::AllocaInst* result = type->isVoidTy() ? nullptr : place(type_in_memory(type));
  for (Value* argument : arguments) {
    Value* stored = to_memory(b, argument);
    b.CreateStore(stored, place(stored->getType()));
  }
  operands.append(by_value.begin(), by_value.end());
  llvm::SmallVector<Type*> types;
  for (Value* o : operands) types.push_back(o->getType());
  auto function =
      b.GetInsertBlock()->getModule()->getOrInsertFunction(name, llvm::FunctionType::get(b.getVoidTy(), types, false));
  b.CreateCall(function, operands)->setConvergent();
  Value* value = result ? from_memory(b, b.CreateLoad(result->getAllocatedType(), result), type) : nullptr;
  for (llvm::AllocaInst* v : variables) b.CreateLifetimeEnd(v);
  return value;
}

}  // namespace metal_on_cpu::air
