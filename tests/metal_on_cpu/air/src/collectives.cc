#include "collectives.h"

#include <llvm/BinaryFormat/Dwarf.h>
#include <llvm/Demangle/Demangle.h>
#include <llvm/IR/DIBuilder.h>
#include <llvm/IR/DebugInfoMetadata.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/InstIterator.h>

#include <algorithm>
#include <map>

#include "library_call.h"

namespace metal_on_cpu::air {
namespace {

using Builder = llvm::IRBuilder<>;

// One constant text for each file name.
llvm::Value* text_constant(Builder& b, llvm::StringRef text) {
  llvm::Module& m = *b.GetInsertBlock()->getModule();
  const std::string name = ("air.text." + text).str();
  if (llvm::GlobalVariable* known = m.getGlobalVariable(name, true)) return known;
  return b.CreateGlobalString(text, name);
}

struct DebugPlace {
  llvm::Value *file, *line, *column;
};
DebugPlace place_of(Builder& b, const llvm::DebugLoc& at) {
  return {text_constant(b, at ? at->getFilename() : ""), b.getInt32(at ? at.getLine() : 0), b.getInt32(at ? at.getCol() : 0)};
}

// "void f<half>(...)::local_max" gives "local_max".
std::string source_name(llvm::StringRef symbol) {
  const std::string text = llvm::demangle(symbol);
  const size_t colons = text.rfind("::");
  return colons == std::string::npos ? text : text.substr(colons + 2);
}

}  // namespace

void number_instructions(llvm::Module& module, const std::string& kernel) {
  if (module.getNamedMetadata("llvm.dbg.cu")) return;
  llvm::DIBuilder debug(module);
  llvm::DIFile* file = debug.createFile(kernel + ".air", "");
  debug.createCompileUnit(llvm::dwarf::DW_LANG_C_plus_plus, file, "", true, "", 0, "", llvm::DICompileUnit::LineTablesOnly);
  llvm::DISubroutineType* type = debug.createSubroutineType(debug.getOrCreateTypeArray({}));
  unsigned number = 0;
  for (llvm::Function& f : module) {
    if (f.isDeclaration()) continue;
    llvm::DISubprogram* scope =
        debug.createFunction(file, f.getName(), f.getName(), file, number + 1, type, number + 1, llvm::DINode::FlagZero,
                             llvm::DISubprogram::SPFlagDefinition | llvm::DISubprogram::SPFlagOptimized);
    f.setSubprogram(scope);
    for (llvm::Instruction& i : llvm::instructions(f))
      i.setDebugLoc(llvm::DILocation::get(module.getContext(), ++number, 0, scope));
  }
  debug.finalize();
}

std::vector<std::string> call_collectives(llvm::Module& module, const llvm::Module& library) {
  std::vector<std::string> unknown;
  for (llvm::Function& f : llvm::make_early_inc_range(module)) {
    if (!f.getName().starts_with("air.")) continue;
    std::string name = f.getName().str();
    std::replace(name.begin(), name.end(), '.', '_');
    if (!f.use_empty() && !library.getFunction(name)) {
      unknown.push_back(f.getName().str());
      continue;
    }
    for (llvm::User* user : llvm::make_early_inc_range(f.users())) {
      auto* call = llvm::cast<llvm::CallInst>(user);
      Builder b(call);
      const DebugPlace place = place_of(b, call->getDebugLoc());
      llvm::Value* value = call_library(b, name, call->getType(), llvm::SmallVector<llvm::Value*>(call->args()),
                                        {place.file, place.line, place.column});
      if (value) call->replaceAllUsesWith(value);
      call->eraseFromParent();
    }
    f.eraseFromParent();
  }
  return unknown;
}

void place_threadgroup_variables(llvm::Module& module, const std::vector<std::string>& names) {
  uint32_t id = 0;
  for (const std::string& name : names) {
    llvm::GlobalVariable* variable = module.getGlobalVariable(name, true);
    std::map<llvm::Function*, llvm::Value*> storage;
    for (llvm::Use& use : llvm::make_early_inc_range(variable->uses())) {
      auto* user = llvm::dyn_cast<llvm::Instruction>(use.getUser());
      if (!user) continue;  // no constant expression is left in a function, and no initializer may name one
      llvm::Function* f = user->getFunction();
      llvm::Value*& at = storage[f];
      if (!at) {
        Builder b(&f->getEntryBlock(), f->getEntryBlock().getFirstInsertionPt());
        const llvm::DISubprogram* scope = f->getSubprogram();
        if (scope)
          b.SetCurrentDebugLocation(
              llvm::DILocation::get(module.getContext(), scope->getLine(), 0, const_cast<llvm::DISubprogram*>(scope)));
        const uint64_t bytes = module.getDataLayout().getTypeAllocSize(variable->getValueType());
        const llvm::Align align =
            variable->getAlign().value_or(module.getDataLayout().getABITypeAlign(variable->getValueType()));
        llvm::Type *word = b.getInt32Ty(), *size = b.getInt64Ty(), *pointer = b.getPtrTy();
        auto function = module.getOrInsertFunction(
            "msl_threadgroup_variable", llvm::FunctionType::get(pointer, {word, size, size, pointer, pointer, word}, false));
        const DebugPlace place = place_of(b, b.getCurrentDebugLocation());
        at = b.CreateCall(function, {b.getInt32(id), b.getInt64(bytes), b.getInt64(align.value()),
                                     text_constant(b, source_name(name)), place.file, place.line});
      }
      use.set(at);
    }
    variable->eraseFromParent();
    ++id;
  }
}

}  // namespace metal_on_cpu::air
