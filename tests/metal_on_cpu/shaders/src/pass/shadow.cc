#include "shadow.h"

#include <llvm/IR/Module.h>

namespace metal_on_cpu::pass {
namespace {

llvm::Value* each_unknown(llvm::IRBuilder<>& b, llvm::Value* shadow) {
  return b.CreateICmpNE(shadow, llvm::Constant::getNullValue(shadow->getType()));
}

llvm::Value* joined(llvm::IRBuilder<>& b, llvm::Value* bits) {
  return bits->getType()->isVectorTy() ? b.CreateOrReduce(bits) : bits;
}

// All bits of the components whose bit is set, in a shadow of that type.
llvm::Value* spread(llvm::IRBuilder<>& b, llvm::Value* bits, llvm::Type* shadow) {
  if (const auto* v = llvm::dyn_cast<llvm::FixedVectorType>(shadow); v && !bits->getType()->isVectorTy())
    bits = b.CreateVectorSplat(v->getElementCount(), bits);
  return b.CreateSExt(bits, shadow);
}

}  // namespace

bool Shadows::has_shadow(const llvm::Type* type) {
  const llvm::Type* t = type->getScalarType();
  return !llvm::isa<llvm::ScalableVectorType>(type) && (t->isIntegerTy() || t->isFloatingPointTy() || t->isPointerTy());
}

llvm::Type* Shadows::type_of(llvm::Type* type) {
  if (const auto* v = llvm::dyn_cast<llvm::FixedVectorType>(type))
    return llvm::FixedVectorType::get(type_of(v->getElementType()), v->getNumElements());
  if (type->isIntegerTy()) return type;
  return llvm::IntegerType::get(type->getContext(), type->isPointerTy() ? 64 : type->getPrimitiveSizeInBits());
}

bool Shadows::propagates(const llvm::Instruction& i) {
  if (const auto* call = llvm::dyn_cast<llvm::CallInst>(&i))
    return call->doesNotAccessMemory() && !call->isIndirectCall() && has_shadow(call->getType());
  return llvm::isa<llvm::CastInst, llvm::BinaryOperator, llvm::UnaryOperator, llvm::CmpInst, llvm::SelectInst, llvm::PHINode,
                   llvm::ExtractElementInst, llvm::InsertElementInst, llvm::ShuffleVectorInst, llvm::FreezeInst,
                   llvm::GetElementPtrInst>(i);
}

llvm::Value* Shadows::of(llvm::Value* v) const {
  const auto found = shadows_.find(v);
  return found != shadows_.end() ? found->second : llvm::Constant::getNullValue(type_of(v->getType()));
}

llvm::Value* Shadows::any(llvm::IRBuilder<>& b, llvm::Value* shadow) { return joined(b, each_unknown(b, shadow)); }

llvm::Value* Shadows::whole_component(llvm::IRBuilder<>& b, llvm::Value* shadow) {
  return joined(b, b.CreateICmpEQ(shadow, llvm::Constant::getAllOnesValue(shadow->getType())));
}

void Shadows::propagate(llvm::Instruction& i) {
  if (auto* phi = llvm::dyn_cast<llvm::PHINode>(&i)) {
    llvm::IRBuilder<> b(phi);
    shadows_[phi] = b.CreatePHI(type_of(phi->getType()), phi->getNumIncomingValues());
    return;
  }
  llvm::IRBuilder<> b(i.getNextNode());
  shadows_[&i] = compute(b, i);
}

void Shadows::complete_phis() {
  for (auto& [value, shadow] : shadows_) {
    auto* phi = llvm::dyn_cast<llvm::PHINode>(value);
    if (!phi) continue;
    for (unsigned k = 0; k < phi->getNumIncomingValues(); ++k)
      llvm::cast<llvm::PHINode>(shadow)->addIncoming(of(phi->getIncomingValue(k)), phi->getIncomingBlock(k));
  }
}

llvm::Value* Shadows::compute(llvm::IRBuilder<>& b, llvm::Instruction& i) {
  if (auto* c = llvm::dyn_cast<llvm::CastInst>(&i)) return cast(b, *c);
  if (auto* o = llvm::dyn_cast<llvm::BinaryOperator>(&i)) return binary(b, *o);
  if (llvm::isa<llvm::FreezeInst>(i)) return of(i.getOperand(0));
  if (auto* e = llvm::dyn_cast<llvm::ExtractElementInst>(&i))
    return b.CreateExtractElement(of(e->getVectorOperand()), e->getIndexOperand());
  if (auto* e = llvm::dyn_cast<llvm::InsertElementInst>(&i))
    return b.CreateInsertElement(of(e->getOperand(0)), of(e->getOperand(1)), e->getOperand(2));
  if (auto* s = llvm::dyn_cast<llvm::ShuffleVectorInst>(&i))
    return b.CreateShuffleVector(of(s->getOperand(0)), of(s->getOperand(1)), s->getShuffleMask());
  if (auto* s = llvm::dyn_cast<llvm::SelectInst>(&i)) {
    llvm::Value* chosen = b.CreateSelect(s->getCondition(), of(s->getTrueValue()), of(s->getFalseValue()));
    return b.CreateSelect(of(s->getCondition()), llvm::Constant::getAllOnesValue(chosen->getType()), chosen);
  }
  return mixed(b, i);
}

llvm::Value* Shadows::cast(llvm::IRBuilder<>& b, llvm::CastInst& i) {
  llvm::Value* shadow = of(i.getOperand(0));
  llvm::Type* to = type_of(i.getType());
  switch (i.getOpcode()) {
    case llvm::Instruction::BitCast:
      return b.CreateBitCast(shadow, to);
    case llvm::Instruction::SExt:
      return b.CreateSExt(shadow, to);
    case llvm::Instruction::Trunc:
    case llvm::Instruction::ZExt:
    case llvm::Instruction::PtrToInt:
    case llvm::Instruction::IntToPtr:
      return b.CreateZExtOrTrunc(shadow, to);
    default:
      return spread(b, each_unknown(b, shadow), to);
  }
}

// Bit by bit where the operation is; any unknown bit makes a sum or product unknown.
llvm::Value* Shadows::binary(llvm::IRBuilder<>& b, llvm::BinaryOperator& i) {
  llvm::Value *x = i.getOperand(0), *y = i.getOperand(1), *sx = of(x), *sy = of(y);
  llvm::Value* both = b.CreateAnd(sx, sy);
  switch (i.getOpcode()) {
    case llvm::Instruction::And:
      return b.CreateOr(both, b.CreateOr(b.CreateAnd(x, sy), b.CreateAnd(sx, y)));
    case llvm::Instruction::Or:
      return b.CreateOr(both, b.CreateOr(b.CreateAnd(b.CreateNot(x), sy), b.CreateAnd(sx, b.CreateNot(y))));
    case llvm::Instruction::Xor:
      return b.CreateOr(sx, sy);
    case llvm::Instruction::Shl:
    case llvm::Instruction::LShr:
    case llvm::Instruction::AShr:
      return b.CreateOr(b.CreateBinOp(i.getOpcode(), sx, y), spread(b, each_unknown(b, sy), sx->getType()));
    default:
      return spread(b, each_unknown(b, b.CreateOr(sx, sy)), sx->getType());
  }
}

// Comparisons, calls of functions, addresses: component by component where the shapes agree.
llvm::Value* Shadows::mixed(llvm::IRBuilder<>& b, llvm::Instruction& i) {
  llvm::Type* const to = type_of(i.getType());
  const auto* shape = llvm::dyn_cast<llvm::FixedVectorType>(to);
  llvm::Value* unknown = nullptr;
  for (llvm::Value* operand : i.operands()) {
    if (!shadows_.contains(operand)) continue;
    llvm::Value* bits = each_unknown(b, of(operand));
    const auto* own = llvm::dyn_cast<llvm::FixedVectorType>(bits->getType());
    if (own && !(shape && own->getNumElements() == shape->getNumElements())) bits = joined(b, bits);
    if (!bits->getType()->isVectorTy() && shape) bits = b.CreateVectorSplat(shape->getElementCount(), bits);
    unknown = unknown ? b.CreateOr(unknown, bits) : bits;
  }
  return unknown ? spread(b, unknown, to) : llvm::Constant::getNullValue(to);
}

}  // namespace metal_on_cpu::pass
