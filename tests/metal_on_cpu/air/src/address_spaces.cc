#include "address_spaces.h"

#include <llvm/ADT/DenseMap.h>
#include <llvm/ADT/STLExtras.h>
#include <llvm/IR/Constants.h>
#include <llvm/IR/DerivedTypes.h>
#include <llvm/IR/InstIterator.h>
#include <llvm/IR/Instructions.h>
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/ReplaceConstant.h>
#include <llvm/Transforms/Utils/ValueMapper.h>

namespace metal_on_cpu::air {
namespace {

constexpr unsigned kThreadgroupSpace = 3;

class PlainTypes : public llvm::ValueMapTypeRemapper {
 public:
  llvm::Type* remapType(llvm::Type* type) override {
    if (const auto found = known_.find(type); found != known_.end()) return found->second;
    llvm::Type* plain = map(type);
    known_[type] = plain;
    return plain;
  }

 private:
  llvm::Type* map(llvm::Type* type) {
    if (type->isPointerTy()) return llvm::PointerType::get(type->getContext(), 0);
    if (auto* array = llvm::dyn_cast<llvm::ArrayType>(type))
      return llvm::ArrayType::get(remapType(array->getElementType()), array->getNumElements());
    if (auto* vector = llvm::dyn_cast<llvm::VectorType>(type))
      return llvm::VectorType::get(remapType(vector->getElementType()), vector->getElementCount());
    if (auto* function = llvm::dyn_cast<llvm::FunctionType>(type)) {
      llvm::SmallVector<llvm::Type*> parameters;
      for (llvm::Type* p : function->params()) parameters.push_back(remapType(p));
      return llvm::FunctionType::get(remapType(function->getReturnType()), parameters, function->isVarArg());
    }
    auto* structure = llvm::dyn_cast<llvm::StructType>(type);
    if (!structure || structure->isOpaque()) return type;
    llvm::SmallVector<llvm::Type*> elements;
    for (llvm::Type* e : structure->elements()) elements.push_back(remapType(e));
    if (llvm::equal(elements, structure->elements())) return type;
    return structure->isLiteral()
               ? llvm::StructType::get(type->getContext(), elements, structure->isPacked())
               : llvm::StructType::create(type->getContext(), elements, structure->getName(), structure->isPacked());
  }

  llvm::DenseMap<llvm::Type*, llvm::Type*> known_;
};

// Functions and variables whose types change are made anew, and everything that names them is mapped to the new ones.
class Rewriter {
 public:
  explicit Rewriter(llvm::Module& module) : module_(module) {}

  std::vector<std::string> run() {
    llvm::SmallVector<llvm::Constant*> spaced;
    for (llvm::GlobalVariable& g : module_.globals()) {
      if (g.getAddressSpace() != 0) spaced.push_back(&g);
    }
    llvm::convertUsersOfConstantsToInstructions(spaced);
    std::vector<std::string> threadgroup;
    for (llvm::Constant* c : spaced) {
      if (c->getType()->getPointerAddressSpace() == kThreadgroupSpace) threadgroup.push_back(c->getName().str());
    }
    for (llvm::Function& f : llvm::make_early_inc_range(module_)) declare(f);
    for (llvm::GlobalVariable& g : llvm::make_early_inc_range(module_.globals())) declare(g);
    for (const auto& [before, after] : variables_) define(*before, *after);
    for (llvm::Function& f : module_) {
      if (!f.isDeclaration()) llvm::RemapFunction(f, map_, kFlags, &types_);
    }
    for (llvm::Function* f : functions_) f->eraseFromParent();
    for (const auto& [before, after] : variables_) before->eraseFromParent();
    remove_casts();
    rename_intrinsics();
    return threadgroup;
  }

 private:
  static constexpr auto kFlags =
      static_cast<llvm::RemapFlags>(int{llvm::RF_IgnoreMissingLocals} | int{llvm::RF_ReuseAndMutateDistinctMDs});

  void declare(llvm::Function& before) {
    auto* type = llvm::cast<llvm::FunctionType>(types_.remapType(before.getFunctionType()));
    if (type == before.getFunctionType()) return;
    // Created under its name: that is what makes an intrinsic one.
    const std::string name = before.getName().str();
    before.setName("");
    llvm::Function* after = llvm::Function::Create(type, before.getLinkage(), 0, name, &module_);
    after->copyAttributesFrom(&before);
    after->copyMetadata(&before, 0);
    before.clearMetadata();
    after->splice(after->begin(), &before);
    for (size_t i = 0; i < before.arg_size(); ++i) {
      after->getArg(i)->takeName(before.getArg(i));
      map_[before.getArg(i)] = after->getArg(i);
    }
    map_[&before] = after;
    functions_.push_back(&before);
  }

  void declare(llvm::GlobalVariable& before) {
    llvm::Type* type = types_.remapType(before.getValueType());
    if (before.getAddressSpace() == 0 && type == before.getValueType()) return;
    auto* after = new llvm::GlobalVariable(module_, type, before.isConstant(), before.getLinkage(), nullptr, "", &before,
                                           llvm::GlobalValue::NotThreadLocal, 0);
    after->copyAttributesFrom(&before);
    after->takeName(&before);
    map_[&before] = after;
    variables_.emplace_back(&before, after);
  }

  void define(llvm::GlobalVariable& before, llvm::GlobalVariable& after) {
    if (before.hasInitializer())
      after.setInitializer(llvm::cast<llvm::Constant>(llvm::MapValue(before.getInitializer(), map_, kFlags, &types_)));
    before.setInitializer(nullptr);
  }

  void remove_casts() {
    for (llvm::Function& f : module_) {
      for (llvm::Instruction& i : llvm::make_early_inc_range(llvm::instructions(f))) {
        if (!llvm::isa<llvm::AddrSpaceCastInst>(i)) continue;
        i.replaceAllUsesWith(i.getOperand(0));
        i.eraseFromParent();
      }
    }
  }

  // llvm.memcpy.p0.p1.i64 and its like carry the address spaces in their names.
  void rename_intrinsics() {
    for (llvm::Function& f : llvm::make_early_inc_range(module_)) {
      if (!f.isIntrinsic()) continue;
      if (const auto renamed = llvm::Intrinsic::remangleIntrinsicFunction(&f)) {
        f.replaceAllUsesWith(*renamed);
        f.eraseFromParent();
      }
    }
  }

  llvm::Module& module_;
  PlainTypes types_;
  llvm::ValueToValueMapTy map_;
  std::vector<llvm::Function*> functions_;
  std::vector<std::pair<llvm::GlobalVariable*, llvm::GlobalVariable*>> variables_;
};

}  // namespace

std::vector<std::string> drop_address_spaces(llvm::Module& module) { return Rewriter(module).run(); }

}  // namespace metal_on_cpu::air
