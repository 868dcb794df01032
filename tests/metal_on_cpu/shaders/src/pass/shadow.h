// Shadows of values: for each bit, whether it is unknown. A number has an integer of its own width, a vector a vector of them.
#pragma once

#include <llvm/ADT/DenseMap.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Instructions.h>

namespace metal_on_cpu::pass {

class Shadows {
 public:
  static bool has_shadow(const llvm::Type* type);
  static llvm::Type* type_of(llvm::Type* type);
  /// Whether the instruction's result is unknown where its operands are.
  static bool propagates(const llvm::Instruction& i);

  void set(llvm::Instruction& of, llvm::Value* shadow) { shadows_[&of] = shadow; }
  bool has(llvm::Instruction& of) const { return shadows_.contains(&of); }
  /// Computes the shadow of an instruction behind it. Operands come before their users, but for those of phis.
  void propagate(llvm::Instruction& i);
  void complete_phis();
  /// Zero for what has none.
  llvm::Value* of(llvm::Value* v) const;

  /// One bit: any bit is set; all of some component are.
  static llvm::Value* any(llvm::IRBuilder<>& b, llvm::Value* shadow);
  static llvm::Value* whole_component(llvm::IRBuilder<>& b, llvm::Value* shadow);

 private:
  llvm::Value* compute(llvm::IRBuilder<>& b, llvm::Instruction& i);
  llvm::Value* cast(llvm::IRBuilder<>& b, llvm::CastInst& i);
  llvm::Value* binary(llvm::IRBuilder<>& b, llvm::BinaryOperator& i);
  llvm::Value* mixed(llvm::IRBuilder<>& b, llvm::Instruction& i);

  llvm::DenseMap<llvm::Value*, llvm::Value*> shadows_;
};

}  // namespace metal_on_cpu::pass
