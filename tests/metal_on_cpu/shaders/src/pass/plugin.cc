// The pass that clang loads for checked mode. Before anything is optimized it has everything inlined, as Apple's compiler does,
// and marks variables without a value; behind the optimizer, before AddressSanitizer, it counts what each basic block computes
// and makes it report itself to the runtime; at the end it gives the sanitizers' hooks names of our own, and makes the object.
// Where registers are counted, the pass says how many there are.
#include <llvm/IR/CFG.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/InstIterator.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Passes/PassPlugin.h>
#include <llvm/Support/CommandLine.h>
#include <llvm/Support/raw_ostream.h>

#include <cstdlib>

#include "hooks.h"
#include "language.h"
#include "object.h"
#include "operations.h"
#include "uninitialized.h"

namespace metal_on_cpu::pass {
namespace {

constexpr const char* kSection = "msl_kernels";
constexpr const char* kRegisters = "128";                         // of 32 bits, of a thread of an Apple GPU
constexpr const char* kLastPass = "RelLookupTableConverterPass";  // of clang -O2, behind AddressSanitizer

llvm::cl::opt<bool> make_object("msl-object", llvm::cl::desc("Write a checked object to the standard output"));

bool is_shader(const llvm::Function& f) { return !f.isDeclaration() && f.hasFnAttribute(llvm::Attribute::SanitizeAddress); }

// Functions that are called by their names only: the others are kernels.
bool is_helper(const llvm::Function& f) { return !f.hasAddressTaken() && !f.hasFnAttribute(llvm::Attribute::NoInline); }

bool has_line(const llvm::Instruction& i) { return i.getDebugLoc() && i.getDebugLoc().getLine() != 0; }

// The optimizer joins accesses of two lines to one of none. Findings of them are placed where the nearest line is: in front in
// the block, behind, or at the end of a block that leads here.
llvm::DebugLoc nearest_line(const llvm::Instruction& at) {
  for (const llvm::Instruction* i = &at; i; i = i->getPrevNode())
    if (has_line(*i)) return i->getDebugLoc();
  for (const llvm::Instruction* i = &at; i; i = i->getNextNode())
    if (has_line(*i)) return i->getDebugLoc();
  for (const llvm::BasicBlock* block : llvm::predecessors(at.getParent()))
    if (has_line(*block->getTerminator())) return block->getTerminator()->getDebugLoc();
  return at.getDebugLoc();
}

void complete_lines(llvm::Function& f) {
  for (llvm::Instruction& i : llvm::instructions(f)) {
    if ((i.mayReadOrWriteMemory() || llvm::isa<llvm::CallInst>(i)) && !has_line(i)) i.setDebugLoc(nearest_line(i));
  }
}

class Prepare : public llvm::PassInfoMixin<Prepare> {
 public:
  llvm::PreservedAnalyses run(llvm::Module& module, llvm::ModuleAnalysisManager&) {
    if (llvm::StringRef(module.getTargetTriple()).starts_with("amdgcn"))
      for (llvm::Function& f : module) f.addFnAttr("amdgpu-num-vgpr", kRegisters);
    const auto recursive = recursive_functions(module, true);
    for (llvm::Function& f : module) {
      if (!is_shader(f)) continue;
      mark_uninitialized(f);
      // What this attribute keeps the optimizer from is what would let an unknown byte decide a branch too early.
      f.addFnAttr(llvm::Attribute::SanitizeMemory);
      if (!is_helper(f) || llvm::is_contained(recursive, &f)) continue;
      f.setLinkage(llvm::GlobalValue::InternalLinkage);
      f.setComdat(nullptr);
      f.addFnAttr(llvm::Attribute::AlwaysInline);
    }
    return llvm::PreservedAnalyses::none();
  }
};

class Instrument : public llvm::PassInfoMixin<Instrument> {
 public:
  llvm::PreservedAnalyses run(llvm::Module& module, llvm::ModuleAnalysisManager&) {
    if (const auto errors = language_errors(module); !errors.empty()) {
      for (const std::string& error : errors) llvm::errs() << error << "\n";
      llvm::errs().flush();
      std::exit(1);
    }
    if (llvm::none_of(module, is_shader)) return llvm::PreservedAnalyses::all();  // fast mode
    for (llvm::Function& f : module) {
      if (!is_shader(f)) continue;
      for (llvm::BasicBlock& block : f) announce(block);
      announce_alignments(f);
      report_uninitialized(f, f.hasAddressTaken());
      complete_lines(f);
      f.removeFnAttr(llvm::Attribute::SanitizeMemory);
    }
    write_tables(module);
    return llvm::PreservedAnalyses::none();
  }

 private:
  void announce(llvm::BasicBlock& block) {
    llvm::Module& module = *block.getModule();
    llvm::IRBuilder<> b(&block, block.getFirstNonPHIOrDbgOrAlloca());
    for (const llvm::Instruction& i : block) {
      if (!i.getDebugLoc() || i.getDebugLoc().getLine() == 0) continue;
      b.SetCurrentDebugLocation(i.getDebugLoc());
      break;
    }
    b.CreateCall(module.getOrInsertFunction("msl_block", b.getVoidTy(), b.getInt32Ty()),
                 {b.getInt32(static_cast<uint32_t>(blocks_.size()))});
    blocks_.push_back(count_operations(block));
  }

  // msl::Tables of prelude/msl/abi.h.
  void write_tables(llvm::Module& module) const {
    llvm::LLVMContext& c = module.getContext();
    auto* const word = llvm::Type::getInt32Ty(c);
    std::vector<uint32_t> counts;
    for (const OperationCounts& block : blocks_) counts.insert(counts.end(), block.begin(), block.end());
    const auto global = [&](llvm::Constant* value, const char* name, llvm::GlobalValue::LinkageTypes linkage) {
      return new llvm::GlobalVariable(module, value->getType(), true, linkage, value, name);
    };
    llvm::Constant* const parts[] = {
        llvm::ConstantInt::get(word, blocks_.size()),
        global(llvm::ConstantDataArray::get(c, counts), "msl_block_operations", llvm::GlobalValue::InternalLinkage)};
    global(llvm::ConstantStruct::getAnon(parts), "msl_image_tables", llvm::GlobalValue::ExternalLinkage);
  }

  std::vector<OperationCounts> blocks_;
};

/// LLVM asks no plugin after the sanitizers, so this looks at each pass that has run.
void after_pass(llvm::StringRef name, llvm::Any ir, const llvm::PreservedAnalyses&) {
  const auto* const unit = llvm::any_cast<const llvm::Module*>(&ir);
  if (name != kLastPass || !unit) return;
  auto& module = const_cast<llvm::Module&>(**unit);
  rename_hooks(module);
  write_object_and_exit(module);
}

}  // namespace
}  // namespace metal_on_cpu::pass

extern "C" __attribute__((visibility("default"))) llvm::PassPluginLibraryInfo llvmGetPassPluginInfo() {
  return {LLVM_PLUGIN_API_VERSION, "metal-on-cpu", "1", [](llvm::PassBuilder& builder) {
            builder.registerPipelineStartEPCallback([](llvm::ModulePassManager& passes, llvm::OptimizationLevel) {
              passes.addPass(metal_on_cpu::pass::Prepare());
            });
            builder.registerOptimizerLastEPCallback([](llvm::ModulePassManager& passes, llvm::OptimizationLevel) {
              passes.addPass(metal_on_cpu::pass::Instrument());
            });
            if (metal_on_cpu::pass::make_object)
              builder.getPassInstrumentationCallbacks()->registerAfterPassCallback(metal_on_cpu::pass::after_pass);
          }};
}
