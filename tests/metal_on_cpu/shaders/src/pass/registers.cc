#include "registers.h"

#include <llvm/ADT/BitVector.h>
#include <llvm/ADT/DenseMap.h>
#include <llvm/ADT/PostOrderIterator.h>
#include <llvm/IR/CFG.h>
#include <llvm/IR/DerivedTypes.h>
#include <llvm/IR/InstIterator.h>
#include <llvm/IR/Instructions.h>
#include <llvm/IR/IntrinsicInst.h>

#include <algorithm>
#include <vector>

namespace metal_on_cpu::pass {
namespace {

uint32_t halves_of(const llvm::Type* type) {
  if (const auto* v = llvm::dyn_cast<llvm::FixedVectorType>(type)) return v->getNumElements() * halves_of(v->getElementType());
  if (const auto* s = llvm::dyn_cast<llvm::StructType>(type)) {
    uint32_t sum = 0;
    for (const llvm::Type* element : s->elements()) sum += halves_of(element);
    return sum;
  }
  if (type->isPointerTy() || type->isDoubleTy()) return 4;
  if (type->isFloatTy()) return 2;
  if (type->isIntegerTy()) return std::max(1u, (type->getIntegerBitWidth() + 15) / 16);
  return type->isHalfTy() || type->isBFloatTy() ? 1 : 0;
}

// The classical backward analysis: a value is alive from its definition to its last use; a phi uses its operands at the end of
// the blocks they come from.
class Liveness {
 public:
  explicit Liveness(const llvm::Function& f) : f_(f) {
    for (const llvm::Argument& a : f.args()) number(a);
    for (const llvm::Instruction& i : llvm::instructions(f)) number(i);
    for (const llvm::BasicBlock& b : f) live_in_[&b].resize(static_cast<unsigned>(halves_.size()));
  }

  uint32_t maximum() {
    for (bool changed = true; changed;) {
      changed = false;
      for (const llvm::BasicBlock* b : llvm::post_order(&f_)) {
        llvm::BitVector live = walk(*b);
        changed = changed || live != live_in_[b];
        live_in_[b] = std::move(live);
      }
    }
    maximum_ = 0;
    for (const llvm::BasicBlock* b : llvm::post_order(&f_)) walk(*b);
    return maximum_;
  }

 private:
  // An address inside an allocation of the stack is no value that a GPU would keep.
  void number(const llvm::Value& v) {
    const uint32_t halves = llvm::isa<llvm::AllocaInst>(v) ? 0 : halves_of(v.getType());
    if (halves == 0) return;
    numbers_[&v] = static_cast<unsigned>(halves_.size());
    halves_.push_back(halves);
  }

  void use(const llvm::Value* v, llvm::BitVector& live) {
    const auto found = numbers_.find(v);
    if (found == numbers_.end() || live.test(found->second)) return;
    live.set(found->second);
    pressure_ += halves_[found->second];
  }
  void define(const llvm::Value* v, llvm::BitVector& live) {
    const auto found = numbers_.find(v);
    if (found == numbers_.end() || !live.test(found->second)) return;
    live.reset(found->second);
    pressure_ -= halves_[found->second];
  }

  // From the end of the block to its start; what is alive there.
  llvm::BitVector walk(const llvm::BasicBlock& b) {
    llvm::BitVector live(static_cast<unsigned>(halves_.size()));
    pressure_ = 0;
    for (const llvm::BasicBlock* next : llvm::successors(&b)) {
      for (const unsigned n : live_in_[next].set_bits()) {
        if (!live.test(n)) pressure_ += halves_[n];
        live.set(n);
      }
      for (const llvm::PHINode& phi : next->phis()) use(phi.getIncomingValueForBlock(&b), live);
    }
    maximum_ = std::max(maximum_, pressure_);
    for (const llvm::Instruction& i : llvm::reverse(b)) {
      define(&i, live);
      if (llvm::isa<llvm::PHINode>(i) || i.isLifetimeStartOrEnd()) continue;
      for (const llvm::Value* operand : i.operands()) use(operand, live);
      maximum_ = std::max(maximum_, pressure_);
    }
    return live;
  }

  const llvm::Function& f_;
  llvm::DenseMap<const llvm::Value*, unsigned> numbers_;
  std::vector<uint32_t> halves_;
  llvm::DenseMap<const llvm::BasicBlock*, llvm::BitVector> live_in_;
  uint32_t pressure_ = 0, maximum_ = 0;
};

}  // namespace

uint32_t estimate_registers(const llvm::Function& function) { return (Liveness(function).maximum() + 1) / 2; }

}  // namespace metal_on_cpu::pass
