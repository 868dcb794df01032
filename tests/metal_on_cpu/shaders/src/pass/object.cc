#include "object.h"

#include <llvm/ADT/SmallVector.h>
#include <llvm/Analysis/TargetTransformInfo.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/Target/TargetMachine.h>
#include <llvm/Target/TargetOptions.h>

#include <cstdlib>
#include <memory>
#include <string>

namespace metal_on_cpu::pass {
namespace {

[[noreturn]] void refuse(const std::string& why) {
  llvm::errs() << "error: no machine code: " << why << "\n";
  llvm::errs().flush();
  std::_Exit(1);
}

}  // namespace

void write_object_and_exit(llvm::Module& module) {
  std::string error;
  const std::string triple = module.getTargetTriple();
  const llvm::Target* target = llvm::TargetRegistry::lookupTarget(triple, error);
  if (!target) refuse(error);
  // Processor and features are attributes of each function.
  const std::unique_ptr<llvm::TargetMachine> machine(target->createTargetMachine(
      triple, "", "", llvm::TargetOptions(), llvm::Reloc::PIC_, std::nullopt, llvm::CodeGenOptLevel::None));
  if (!machine) refuse("there is no machine for " + triple);
  llvm::SmallVector<char, 0> object;
  llvm::raw_svector_ostream into(object);
  llvm::legacy::PassManager passes;
  passes.add(llvm::createTargetTransformInfoWrapperPass(machine->getTargetIRAnalysis()));
  if (machine->addPassesToEmitFile(passes, into, nullptr, llvm::CodeGenFileType::ObjectFile))
    refuse(triple + " has no objects");
  passes.run(module);
  llvm::raw_fd_ostream out(1, false);
  out.write(object.data(), object.size());
  out.flush();
  std::_Exit(out.has_error() ? 1 : 0);
}

}  // namespace metal_on_cpu::pass
