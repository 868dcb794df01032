#include "hooks.h"

#include <llvm/Analysis/ValueTracking.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/InstIterator.h>
#include <llvm/IR/Instructions.h>
#include <llvm/IR/IntrinsicInst.h>

namespace metal_on_cpu::pass {
namespace {

// "__asan_load4_noabort" is the hook of an access of 4 bytes; 0 for all others.
unsigned size_of_access(llvm::StringRef name) {
  unsigned bytes = 0;
  if (!name.consume_back("_noabort") || !(name.consume_front("__asan_load") || name.consume_front("__asan_store"))) return 0;
  return name.getAsInteger(10, bytes) ? 0 : bytes;
}

// The access that a hook announces is the next one.
llvm::Align alignment_behind(const llvm::CallInst& hook) {
  for (const llvm::Instruction* i = hook.getNextNode(); i; i = i->getNextNode()) {
    if (const auto* load = llvm::dyn_cast<llvm::LoadInst>(i)) return load->getAlign();
    if (const auto* store = llvm::dyn_cast<llvm::StoreInst>(i)) return store->getAlign();
    if (llvm::isa<llvm::CallInst>(i)) break;
  }
  return llvm::Align(1);
}

void name_alignments(llvm::Module& module, llvm::Function& hook) {
  for (llvm::User* user : llvm::make_early_inc_range(hook.users())) {
    auto* call = llvm::dyn_cast<llvm::CallInst>(user);
    if (!call || call->getCalledFunction() != &hook) continue;
    const auto bytes = std::min<uint64_t>(alignment_behind(*call).value(), 16);
    llvm::StringRef name = hook.getName();
    name.consume_front("__");
    name.consume_back("_noabort");
    const std::string aligned = ("msl_" + name + "_align").str() + std::to_string(bytes);
    call->setCalledFunction(module.getOrInsertFunction(aligned, hook.getFunctionType(), hook.getAttributes()));
  }
}

void announce(llvm::MemIntrinsic& copy, llvm::Value* pointer, llvm::MaybeAlign align, bool write) {
  if (align.valueOrOne() == 1 || llvm::isa<llvm::AllocaInst, llvm::GlobalVariable>(llvm::getUnderlyingObject(pointer, 0)))
    return;
  llvm::IRBuilder<> b(&copy);
  auto* const word = b.getInt64Ty();
  b.CreateCall(
      copy.getModule()->getOrInsertFunction("msl_alignment", b.getVoidTy(), b.getPtrTy(), word, word, b.getInt1Ty()),
      {pointer, b.CreateZExtOrTrunc(copy.getLength(), word), b.getInt64(align.valueOrOne().value()), b.getInt1(write)});
}

}  // namespace

void announce_alignments(llvm::Function& function) {
  llvm::SmallVector<llvm::MemIntrinsic*> all;
  for (llvm::Instruction& i : llvm::instructions(function)) {
    if (auto* access = llvm::dyn_cast<llvm::MemIntrinsic>(&i)) all.push_back(access);
  }
  for (llvm::MemIntrinsic* access : all) {
    if (auto* copy = llvm::dyn_cast<llvm::MemTransferInst>(access))
      announce(*copy, copy->getRawSource(), copy->getSourceAlign(), false);
    announce(*access, access->getRawDest(), access->getDestAlign(), true);
  }
}

void rename_hooks(llvm::Module& module) {
  for (llvm::Function& f : llvm::make_early_inc_range(module)) {
    if (size_of_access(f.getName())) name_alignments(module, f);
    if (f.getName().starts_with("__asan_") || f.getName().starts_with("__ubsan_"))
      f.setName("msl_" + f.getName().drop_front(2));
  }
}

}  // namespace metal_on_cpu::pass
