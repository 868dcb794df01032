#include "uninitialized.h"

#include <llvm/ADT/PostOrderIterator.h>
#include <llvm/ADT/SetVector.h>
#include <llvm/Analysis/ValueTracking.h>
#include <llvm/IR/Dominators.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/InstIterator.h>
#include <llvm/IR/Instructions.h>
#include <llvm/IR/IntrinsicInst.h>
#include <llvm/IR/Module.h>

#include <vector>

#include "../../prelude/msl/abi.h"
#include "shadow.h"

namespace metal_on_cpu::pass {
namespace {

constexpr const char* kByte = "msl_uninitialized_byte";
constexpr const char* kShuffle = "_ZN5metal7shuffleI";  // metal::shuffle<...>, of prelude/msl/simd.h

// Bytes of a type that hold none of its members.
struct Padding {
  uint64_t offset, bytes;
};
constexpr size_t kMostPadding = 256;  // of large arrays of structs the rest counts as members

void add_padding(const llvm::DataLayout& layout, llvm::Type* type, uint64_t at, std::vector<Padding>& all) {
  const uint64_t end = at + layout.getTypeAllocSize(type).getFixedValue();
  uint64_t used = at;
  const auto member = [&](llvm::Type* t, uint64_t offset) {
    if (offset > used) all.push_back({used, offset - used});
    add_padding(layout, t, offset, all);
    used = offset + layout.getTypeAllocSize(t).getFixedValue();
  };
  if (auto* s = llvm::dyn_cast<llvm::StructType>(type)) {
    for (unsigned i = 0; i < s->getNumElements(); ++i)
      member(s->getElementType(i), at + layout.getStructLayout(s)->getElementOffset(i));
  } else if (auto* a = llvm::dyn_cast<llvm::ArrayType>(type)) {
    const uint64_t step = layout.getTypeAllocSize(a->getElementType()).getFixedValue();
    for (uint64_t i = 0; i < a->getNumElements() && all.size() < kMostPadding; ++i) member(a->getElementType(), at + i * step);
    used = end;
  } else {
    used = at + layout.getTypeStoreSize(type).getFixedValue();
  }
  if (used < end) all.push_back({used, end - used});
}
std::vector<Padding> padding_of(const llvm::DataLayout& layout, llvm::Type* type) {
  std::vector<Padding> all;
  add_padding(layout, type, 0, all);
  return all;
}

// A call of metal::shuffle: a value, an index and three more. The value and the result come in equally many parts. The last
// part has at most 16 bytes, and each other part has eight.
class Shuffle {
 public:
  /// Values of more than 16 bytes are passed in memory, and are taken to be known.
  static bool is(const llvm::Instruction& i) {
    const auto* call = llvm::dyn_cast<llvm::CallInst>(&i);
    const llvm::Function* callee = call ? call->getCalledFunction() : nullptr;
    return callee && callee->getName().starts_with(kShuffle) && !callee->hasStructRetAttr();
  }
  explicit Shuffle(llvm::CallInst& call) : call_(call), parts_(call.arg_size() - kOthers) {}

  unsigned parts() const { return parts_; }
  llvm::Value* value(unsigned part) const { return call_.getArgOperand(part); }
  bool takes(const llvm::Value* v) const {
    for (unsigned part = 0; part < parts_; ++part)
      if (value(part) == v) return true;
    return false;
  }
  /// The instructions that are parts of the result.
  llvm::SmallVector<std::pair<llvm::Instruction*, unsigned>> results() const {
    if (!call_.getType()->isStructTy()) return {{&call_, 0}};
    llvm::SmallVector<std::pair<llvm::Instruction*, unsigned>> all;
    for (llvm::User* user : call_.users())
      if (auto* e = llvm::dyn_cast<llvm::ExtractValueInst>(user)) all.push_back({e, e->getIndices()[0]});
    return all;
  }

 private:
  static constexpr unsigned kOthers = 4;
  llvm::CallInst& call_;
  unsigned parts_;
};

// Follows what is left of the unknown bytes through one function.
class Follower {
 public:
  Follower(llvm::Function& f, bool is_kernel) : f_(f), is_kernel_(is_kernel) {}

  void run() {
    llvm::SmallVector<llvm::CallInst*> sources;
    for (llvm::Instruction& i : llvm::instructions(f_)) {
      auto* call = llvm::dyn_cast<llvm::CallInst>(&i);
      const llvm::Function* callee = call ? call->getCalledFunction() : nullptr;
      if (callee && callee->getName() == kByte) sources.push_back(call);
    }
    for (llvm::CallInst* source : sources) taint(source);
    if (!sources.empty()) {
      order_.recalculate(f_);
      while (!open_.empty()) follow(open_.pop_back_val());
      shadow_values();
      shadow_memory();
      report_uses();
    }
    for (llvm::CallInst* source : sources) {
      source->replaceAllUsesWith(llvm::ConstantInt::get(source->getType(), 0xaa));
      source->eraseFromParent();
    }
  }

 private:
  // --- what may depend on an unknown byte ---------------------------------------------------------------------------------

  void taint(llvm::Instruction* i) {
    if (Shadows::has_shadow(i->getType()) && tainted_.insert(i)) open_.push_back(i);
  }

  void follow(llvm::Instruction* from) {
    for (llvm::User* user : from->users()) {
      auto* i = llvm::dyn_cast<llvm::Instruction>(user);
      if (!i) continue;
      if (auto* store = llvm::dyn_cast<llvm::StoreInst>(i)) {
        if (store->getValueOperand() == from) track(store->getPointerOperand());
      } else if (auto* set = llvm::dyn_cast<llvm::MemSetInst>(i)) {
        if (set->getValue() == from) track(set->getRawDest());
      } else if (Shuffle::is(*i)) {
        if (!shuffles_ && Shuffle(llvm::cast<llvm::CallInst>(*i)).takes(from)) taint_shuffles();
      } else if (Shadows::propagates(*i)) {
        taint(i);
      }
    }
  }

  // Lanes meet at a line of the source, which may be several calls here.
  void taint_shuffles() {
    llvm::IRBuilder<> b(&*f_.getEntryBlock().getFirstInsertionPt());
    shuffles_ = b.CreateAlloca(llvm::ArrayType::get(b.getInt8Ty(), 2 * msl::kShuffleShadow));
    for (llvm::Instruction& i : llvm::instructions(f_)) {
      if (!Shuffle::is(i)) continue;
      for (const auto& [result, part] : Shuffle(llvm::cast<llvm::CallInst>(i)).results()) taint(result);
    }
  }

  // The variable that the pointer is certainly into, if nothing but loads, stores and copies can touch it.
  llvm::AllocaInst* variable(llvm::Value* pointer) {
    auto* a = llvm::dyn_cast<llvm::AllocaInst>(llvm::getUnderlyingObject(pointer, 0));
    if (!a || !a->isStaticAlloca()) return nullptr;
    const auto [found, fresh] = simple_.try_emplace(a, false);
    if (fresh) found->second = only_accessed(a);
    return simple_[a] ? a : nullptr;
  }
  static bool only_accessed(const llvm::Value* pointer) {
    for (const llvm::User* user : pointer->users()) {
      const auto* store = llvm::dyn_cast<llvm::StoreInst>(user);
      if (store ? store->getValueOperand() == pointer || store->isVolatile() : false) return false;
      if (llvm::isa<llvm::GetElementPtrInst>(user) ? !only_accessed(user)
                                                   : !store && !llvm::isa<llvm::LoadInst, llvm::MemIntrinsic>(user) &&
                                                         !llvm::cast<llvm::Instruction>(user)->isLifetimeStartOrEnd())
        return false;
    }
    return true;
  }

  // An unknown byte may be stored there: then every load of the variable may find it.
  void track(llvm::Value* pointer) {
    llvm::AllocaInst* a = variable(pointer);
    if (!a || shadows_of_.contains(a)) return;
    llvm::IRBuilder<> b(a);
    const uint64_t bytes = a->getAllocationSize(f_.getDataLayout())->getFixedValue();
    llvm::AllocaInst* shadow = b.CreateAlloca(llvm::ArrayType::get(b.getInt8Ty(), bytes));
    shadow->setAlignment(llvm::Align(16));
    shadows_of_[a] = shadow;
    for (llvm::Instruction& i : llvm::instructions(f_)) {
      if (auto* load = llvm::dyn_cast<llvm::LoadInst>(&i); load && variable(load->getPointerOperand()) == a) taint(load);
      if (auto* copy = llvm::dyn_cast<llvm::MemTransferInst>(&i); copy && variable(copy->getRawSource()) == a)
        track(copy->getRawDest());
    }
  }

  // --- shadows --------------------------------------------------------------------------------------------------------------

  void shadow_values() {
    const llvm::ReversePostOrderTraversal<llvm::Function*> order(&f_);
    for (llvm::BasicBlock* block : order) {
      for (llvm::Instruction& i : llvm::make_early_inc_range(*block)) {
        if (shuffles_ && Shuffle::is(i)) shadow_shuffle(llvm::cast<llvm::CallInst>(i));
        if (!tainted_.contains(&i) || shadows_.has(i)) continue;
        auto* load = llvm::dyn_cast<llvm::LoadInst>(&i);
        if (load)
          shadows_.set(i, load_shadow(*load));
        else if (llvm::isa<llvm::CallInst>(i) && llvm::cast<llvm::CallInst>(i).getCalledFunction()->getName() == kByte)
          shadows_.set(i, llvm::Constant::getAllOnesValue(i.getType()));
        else
          shadows_.propagate(i);
      }
    }
    shadows_.complete_phis();
  }

  llvm::Value* shadow_address(llvm::IRBuilder<>& b, llvm::AllocaInst* variable, llvm::Value* pointer) {
    llvm::Value* offset = b.CreateSub(b.CreatePtrToInt(pointer, b.getInt64Ty()), b.CreatePtrToInt(variable, b.getInt64Ty()));
    return b.CreatePtrAdd(shadows_of_[variable], offset);
  }

  llvm::Value* load_shadow(llvm::LoadInst& load) {
    llvm::IRBuilder<> b(load.getNextNode());
    return unchecked(b.CreateAlignedLoad(Shadows::type_of(load.getType()),
                                         shadow_address(b, variable(load.getPointerOperand()), load.getPointerOperand()),
                                         llvm::Align(1)));
  }

  // Hands the shadows of the operands over in front, and fetches those of the results behind.
  void shadow_shuffle(llvm::CallInst& call) {
    const Shuffle shuffle(call);
    llvm::IRBuilder<> b(&call);
    const auto at = [&](size_t from, unsigned part) { return b.CreateConstGEP1_64(b.getInt8Ty(), shuffles_, from + 8 * part); };
    for (unsigned part = 0; part < shuffle.parts(); ++part) {
      llvm::Value* const v = shuffle.value(part);
      if (Shadows::has_shadow(v->getType())) unchecked(b.CreateAlignedStore(shadows_.of(v), at(0, part), llvm::Align(1)));
    }
    b.CreateCall(f_.getParent()->getOrInsertFunction("msl_pass_shadow", b.getVoidTy(), b.getPtrTy()), {shuffles_});
    b.SetInsertPoint(call.getNextNode());
    for (const auto& [result, part] : shuffle.results()) {
      if (tainted_.contains(result))
        shadows_.set(*result, unchecked(b.CreateAlignedLoad(Shadows::type_of(result->getType()), at(msl::kShuffleShadow, part),
                                                            llvm::Align(1))));
    }
  }

  template <class I>
  static I* unchecked(I* i) {
    i->setMetadata(llvm::LLVMContext::MD_nosanitize, llvm::MDNode::get(i->getContext(), {}));
    return i;
  }

  // Behind each access to a variable with a shadow, the same for the shadow.
  void shadow_memory() {
    for (llvm::Instruction& i : llvm::make_early_inc_range(llvm::instructions(f_))) {
      if (i.hasMetadata(llvm::LLVMContext::MD_nosanitize)) continue;
      llvm::Value* pointer = nullptr;
      if (auto* store = llvm::dyn_cast<llvm::StoreInst>(&i)) pointer = store->getPointerOperand();
      if (auto* access = llvm::dyn_cast<llvm::MemIntrinsic>(&i)) pointer = access->getRawDest();
      llvm::AllocaInst* a = pointer ? variable(pointer) : nullptr;
      if (!a || !shadows_of_.contains(a)) continue;
      llvm::IRBuilder<> b(i.getNextNode());
      llvm::Value* to = shadow_address(b, a, pointer);
      if (auto* store = llvm::dyn_cast<llvm::StoreInst>(&i)) {
        unchecked(b.CreateAlignedStore(shadow_of_stored(*store), to, llvm::Align(1)));
      } else if (auto* copy = llvm::dyn_cast<llvm::MemTransferInst>(&i)) {
        llvm::AllocaInst* source = variable(copy->getRawSource());
        if (source && shadows_of_.contains(source))
          unchecked(b.CreateMemMove(to, llvm::Align(1), shadow_address(b, source, copy->getRawSource()), llvm::Align(1),
                                    copy->getLength()));
        else
          unchecked(b.CreateMemSet(to, b.getInt8(0), copy->getLength(), llvm::Align(1)));
      } else {
        auto& set = llvm::cast<llvm::MemSetInst>(i);
        unchecked(b.CreateMemSet(to, shadows_.of(set.getValue()), set.getLength(), llvm::Align(1)));
      }
    }
  }

  // Types without a shadow hold nothing unknown.
  llvm::Value* shadow_of_stored(llvm::StoreInst& store) {
    llvm::Type* type = store.getValueOperand()->getType();
    if (Shadows::has_shadow(type)) return shadows_.of(store.getValueOperand());
    const uint64_t bits = f_.getDataLayout().getTypeStoreSizeInBits(type).getFixedValue();
    return llvm::ConstantInt::get(llvm::IntegerType::get(f_.getContext(), static_cast<unsigned>(bits)), 0);
  }

  // --- uses -----------------------------------------------------------------------------------------------------------------

  void report(llvm::Instruction& at, llvm::Value* condition) {
    llvm::IRBuilder<> b(&at);
    b.SetCurrentDebugLocation(place_of(at));
    b.CreateCall(f_.getParent()->getOrInsertFunction("msl_uninitialized_use", b.getVoidTy(), b.getInt1Ty()), {condition});
  }
  // The optimizer joins instructions of two lines to one of none; then what it depends on has to do.
  llvm::DebugLoc place_of(llvm::Instruction& at) const {
    llvm::SmallSetVector<llvm::Instruction*, 16> near;
    near.insert(&at);
    for (size_t k = 0; k < near.size(); ++k) {
      const llvm::DebugLoc& place = near[k]->getDebugLoc();
      if (place && place.getLine() != 0) return place;
      for (llvm::Value* operand : near[k]->operands()) {
        if (is_tainted(operand)) near.insert(llvm::cast<llvm::Instruction>(operand));
      }
    }
    return at.getDebugLoc();
  }
  // Anything of it is unknown.
  void report_any(llvm::Instruction& at, llvm::Value* v) {
    if (!is_tainted(v) || reported_before(at, v)) return;
    llvm::IRBuilder<> b(&at);
    report(at, Shadows::any(b, shadows_.of(v)));
  }
  // A whole component is. Copies of structs carry padding along, which no program has to set.
  void report_whole(llvm::Instruction& at, llvm::Value* v) {
    if (!is_tainted(v) || reported_before(at, v)) return;
    llvm::IRBuilder<> b(&at);
    report(at, Shadows::whole_component(b, shadows_.of(v)));
  }
  // The first use on the way here has told.
  bool reported_before(llvm::Instruction& at, llvm::Value* v) {
    auto& places = reported_[v];
    if (llvm::any_of(places, [&](llvm::Instruction* other) { return order_.dominates(other, &at); })) return true;
    places.push_back(&at);
    return false;
  }
  bool is_tainted(llvm::Value* v) const {
    auto* i = llvm::dyn_cast<llvm::Instruction>(v);
    return i && tainted_.contains(i);
  }

  // Device and threadgroup memory.
  bool leaves_thread(llvm::Value* pointer) const {
    const llvm::Value* object = llvm::getUnderlyingObject(pointer, 0);
    return !llvm::isa<llvm::AllocaInst>(object) && (is_kernel_ || !llvm::isa<llvm::Argument>(object));
  }

  void report_uses() {
    llvm::SmallVector<llvm::Instruction*> all;
    for (llvm::Instruction& i : llvm::instructions(f_)) all.push_back(&i);
    for (llvm::Instruction* i : all) {
      if (auto* load = llvm::dyn_cast<llvm::LoadInst>(i)) {
        report_any(*i, load->getPointerOperand());
      } else if (auto* store = llvm::dyn_cast<llvm::StoreInst>(i)) {
        report_any(*i, store->getPointerOperand());
        if (leaves_thread(store->getPointerOperand())) report_whole(*i, store->getValueOperand());
      } else if (auto* branch = llvm::dyn_cast<llvm::BranchInst>(i)) {
        if (branch->isConditional()) report_any(*i, branch->getCondition());
      } else if (auto* choice = llvm::dyn_cast<llvm::SwitchInst>(i)) {
        report_any(*i, choice->getCondition());
      } else if (auto* set = llvm::dyn_cast<llvm::MemSetInst>(i)) {
        if (leaves_thread(set->getRawDest())) report_whole(*i, set->getValue());
      } else if (auto* copy = llvm::dyn_cast<llvm::MemTransferInst>(i)) {
        report_copy(*copy);
      } else if (auto* call = llvm::dyn_cast<llvm::CallInst>(i)) {
        report_arguments(*call);
      }
    }
  }

  void report_copy(llvm::MemTransferInst& copy) {
    llvm::AllocaInst* source = variable(copy.getRawSource());
    if (!source || !shadows_of_.contains(source) || !leaves_thread(copy.getRawDest())) return;
    llvm::IRBuilder<> b(&copy);
    const llvm::DataLayout& layout = f_.getDataLayout();
    const auto* length = llvm::dyn_cast<llvm::ConstantInt>(copy.getLength());
    const bool whole = length && length->getZExtValue() == layout.getTypeAllocSize(source->getAllocatedType());
    uint64_t padding = 0;
    if (whole) {
      for (const Padding& p : padding_of(layout, source->getAllocatedType())) padding += p.bytes;
    }
    b.CreateCall(f_.getParent()->getOrInsertFunction("msl_uninitialized_copy", b.getVoidTy(), b.getPtrTy(), b.getInt64Ty(),
                                                     b.getInt64Ty()),
                 {shadow_address(b, source, copy.getRawSource()), b.CreateZExtOrTrunc(copy.getLength(), b.getInt64Ty()),
                  b.getInt64(padding)});
  }

  // Numbers and vectors given to a function of the runtime: clang says that they must be some (noundef), which it does not of
  // classes. Two floats may come as one number of 64 bits.
  void report_arguments(llvm::CallInst& call) {
    const llvm::Function* callee = call.getCalledFunction();
    if (!callee || callee->isIntrinsic() || callee->hasFnAttribute(llvm::Attribute::SanitizeAddress)) return;
    for (unsigned k = 0; k < call.arg_size(); ++k) {
      if (callee->hasParamAttribute(k, llvm::Attribute::NoUndef)) report_any(call, call.getArgOperand(k));
    }
  }

  llvm::Function& f_;
  const bool is_kernel_;
  llvm::SmallSetVector<llvm::Instruction*, 32> tainted_;
  llvm::SmallVector<llvm::Instruction*> open_;
  llvm::DenseMap<llvm::AllocaInst*, bool> simple_;
  llvm::DenseMap<llvm::AllocaInst*, llvm::AllocaInst*> shadows_of_;
  llvm::AllocaInst* shuffles_ = nullptr;  // shadows on their way through a shuffle, if there are any
  llvm::DenseMap<llvm::Value*, llvm::SmallVector<llvm::Instruction*, 2>> reported_;
  llvm::DominatorTree order_;
  Shadows shadows_;
};

bool is_auto_init(const llvm::Instruction& i) {
  const auto* notes = llvm::dyn_cast_or_null<llvm::MDTuple>(i.getMetadata(llvm::LLVMContext::MD_annotation));
  return notes && llvm::any_of(notes->operands(), [](const llvm::MDOperand& note) {
           const auto* text = llvm::dyn_cast<llvm::MDString>(note.get());
           return text && text->getString() == "auto-init";
         });
}

llvm::FunctionCallee unknown_byte(llvm::Module& module) {
  llvm::LLVMContext& c = module.getContext();
  llvm::AttrBuilder pure(c);
  pure.addAttribute(llvm::Attribute::NoUnwind).addAttribute(llvm::Attribute::WillReturn);
  pure.addAttribute(llvm::Attribute::Speculatable).addAttribute(llvm::Attribute::NoSync);
  pure.addMemoryAttr(llvm::MemoryEffects::none());
  return module.getOrInsertFunction(kByte, llvm::FunctionType::get(llvm::Type::getInt8Ty(c), false),
                                    llvm::AttributeList::get(c, llvm::AttributeList::FunctionIndex, pure));
}

// No program has to set padding, and copies carry it along.
void set_padding(llvm::IRBuilder<>& b, llvm::Value* pointer, const llvm::DataLayout& layout) {
  auto* variable = llvm::dyn_cast<llvm::AllocaInst>(pointer);
  if (!variable || variable->isArrayAllocation()) return;
  for (const Padding& p : padding_of(layout, variable->getAllocatedType()))
    b.CreateMemSet(b.CreateConstGEP1_64(b.getInt8Ty(), variable, p.offset), b.getInt8(0), p.bytes, llvm::Align(1));
}

// Whether a pointer into it is kept somewhere, from where it may be used when the variable is gone.
bool address_kept(const llvm::Value* pointer) {
  return llvm::any_of(pointer->users(), [&](const llvm::User* user) {
    if (const auto* store = llvm::dyn_cast<llvm::StoreInst>(user)) return store->getValueOperand() == pointer;
    return llvm::isa<llvm::ReturnInst, llvm::PHINode, llvm::SelectInst, llvm::PtrToIntInst>(user) ||
           (llvm::isa<llvm::GetElementPtrInst>(user) && address_kept(user));
  });
}

// A variable has no value any more behind the end of its scope. The optimizer would take away what reads it there. The marks of
// its begin stay, since inlining makes marks for variables without any.
void mark_ends_of_scopes(llvm::Function& function) {
  for (llvm::Instruction& i : llvm::make_early_inc_range(llvm::instructions(function))) {
    auto* marker = llvm::dyn_cast<llvm::IntrinsicInst>(&i);
    if (!marker || marker->getIntrinsicID() != llvm::Intrinsic::lifetime_end) continue;
    auto* variable = llvm::dyn_cast<llvm::AllocaInst>(marker->getArgOperand(1));
    if (!variable || !address_kept(variable)) continue;
    llvm::IRBuilder<> b(marker);
    const auto bytes = function.getDataLayout().getTypeAllocSize(variable->getAllocatedType());
    b.CreateMemSet(variable, b.CreateCall(unknown_byte(*function.getParent())), bytes, variable->getAlign());
    marker->eraseFromParent();
  }
}

}  // namespace

void mark_uninitialized(llvm::Function& function) {
  llvm::Module& module = *function.getParent();
  mark_ends_of_scopes(function);
  for (llvm::Instruction& i : llvm::make_early_inc_range(llvm::instructions(function))) {
    if (!is_auto_init(i)) continue;
    llvm::IRBuilder<> b(&i);
    if (auto* store = llvm::dyn_cast<llvm::StoreInst>(&i)) {
      const auto bytes = function.getDataLayout().getTypeStoreSize(store->getValueOperand()->getType());
      b.CreateMemSet(store->getPointerOperand(), b.CreateCall(unknown_byte(module)), bytes, store->getAlign());
    } else if (auto* set = llvm::dyn_cast<llvm::MemIntrinsic>(&i)) {
      b.CreateMemSet(set->getRawDest(), b.CreateCall(unknown_byte(module)), set->getLength(), set->getDestAlign());
      set_padding(b, set->getRawDest(), function.getDataLayout());
    } else {
      continue;
    }
    i.eraseFromParent();
  }
}

void report_uninitialized(llvm::Function& function, bool is_kernel) { Follower(function, is_kernel).run(); }

}  // namespace metal_on_cpu::pass
