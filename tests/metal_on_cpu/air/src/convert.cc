#include "convert.h"

#include <llvm/Bitcode/BitcodeReader.h>
#include <llvm/IR/AttributeMask.h>
#include <llvm/IR/DebugInfoMetadata.h>
#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/Module.h>
#include <llvm/IR/Verifier.h>
#include <llvm/Linker/Linker.h>
#include <llvm/Support/MemoryBuffer.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/Transforms/IPO/Internalize.h>
#include <llvm/Transforms/Utils/ModuleUtils.h>

#include <memory>

#include "address_spaces.h"
#include "collectives.h"
#include "constants.h"
#include "intrinsics.h"
#include "registration.h"
#include "signature.h"

namespace metal_on_cpu::air {
namespace {

Result<std::unique_ptr<llvm::Module>> parse(llvm::MemoryBufferRef buffer, llvm::LLVMContext& context) {
  auto module = llvm::parseBitcodeFile(buffer, context);
  if (!module) return Error{"LLVM cannot read the bitcode: " + llvm::toString(module.takeError())};
  return std::move(*module);
}

Result<std::unique_ptr<llvm::Module>> read_library(bool checked, llvm::LLVMContext& context) {
  const char* const path = checked ? METAL_ON_CPU_AIR_LIBRARY "-checked.bc" : METAL_ON_CPU_AIR_LIBRARY "-fast.bc";
  auto file = llvm::MemoryBuffer::getFile(path);
  if (!file) return Error{std::string(path) + ": " + file.getError().message()};
  // Most bodies are never asked for.
  auto module = llvm::getOwningLazyBitcodeModule(std::move(*file), context);
  if (!module) return Error{std::string(path) + ": " + llvm::toString(module.takeError())};
  return std::move(*module);
}

// Properties of Apple's target that mean nothing here, or would be taken for the host's.
void strip_target(llvm::Module& module, const llvm::Module& host) {
  module.setTargetTriple(host.getTargetTriple());
  module.setDataLayout(host.getDataLayout());
  for (const char* name : {"llvm.compiler.used", "llvm.used"}) {
    if (llvm::GlobalVariable* list = module.getGlobalVariable(name)) list->eraseFromParent();
  }
  for (llvm::GlobalVariable& g : module.globals()) {
    if (g.getSection().starts_with("air.")) g.setSection("");
  }
  for (llvm::Function& f : module) {
    llvm::AttributeMask texts;
    for (const llvm::Attribute a : f.getAttributes().getFnAttrs()) {
      if (a.isStringAttribute()) texts.addAttribute(a.getKindAsString());
    }
    f.removeFnAttrs(texts);
  }
  llvm::SmallVector<llvm::NamedMDNode*> gone;
  for (llvm::NamedMDNode& n : module.named_metadata()) {
    if (n.getName().starts_with("air.") || n.getName() == "llvm.ident" || n.getName() == "llvm.module.flags")
      gone.push_back(&n);
  }
  for (llvm::NamedMDNode* n : gone) module.eraseNamedMetadata(n);
  module.addModuleFlag(llvm::Module::Warning, "Debug Info Version", llvm::DEBUG_METADATA_VERSION);
  module.addModuleFlag(llvm::Module::Max, "Dwarf Version", 5);
}

// What links the image to the runtime, and what LLVM's code generator may call.
constexpr const char* kKept[] = {"msl_image_kernels", "__truncsfbf2"};

// Links the bodies that are called. They bring the processor they were compiled for; the module's own functions get the same,
// else nothing would be inlined.
Result<bool> link_library(llvm::Module& module, std::unique_ptr<llvm::Module> library, const ConvertOptions& options) {
  llvm::AttrBuilder host(module.getContext());
  for (const llvm::Function& f : *library) {
    if (!f.hasFnAttribute(llvm::Attribute::AlwaysInline)) continue;
    for (const char* name : {"target-cpu", "target-features", "tune-cpu", "no-trapping-math"}) {
      if (f.hasFnAttribute(name)) host.addAttribute(f.getFnAttribute(name));
    }
    break;
  }
  for (llvm::Function& f : module) {
    if (!f.isDeclaration()) f.addFnAttrs(host);
  }
  for (const char* name : kKept) {
    const llvm::Function* f = library->getFunction(name);
    if (f)
      llvm::appendToUsed(module,
                         {llvm::cast<llvm::GlobalValue>(module.getOrInsertFunction(name, f->getFunctionType()).getCallee())});
  }
  if (llvm::Linker::linkModules(module, std::move(library), llvm::Linker::LinkOnlyNeeded))
    return Error{"the bodies of air.* functions cannot be linked"};
  for (llvm::Function& f : module) {
    if (f.isDeclaration()) continue;
    if (options.checked && f.hasFnAttribute(llvm::Attribute::AlwaysInline)) f.addFnAttr(llvm::Attribute::SanitizeAddress);
    if (options.flush_to_zero) f.addFnAttr("denormal-fp-math-f32", "preserve-sign,preserve-sign");
  }
  llvm::internalizeModule(module,
                          [](const llvm::GlobalValue& g) { return g.getName() == kKept[0] || g.getName() == kKept[1]; });
  return true;
}

std::string verification(const llvm::Module& module) {
  std::string text;
  llvm::raw_string_ostream out(text);
  return llvm::verifyModule(module, &out) ? (text.empty() ? "unknown" : text) : "";
}

std::string joined(const std::vector<std::string>& names) {
  std::string all;
  for (const std::string& n : names) all += (all.empty() ? "" : ", ") + n;
  return all;
}

}  // namespace

Result<std::string> air_to_ir(Bytes bitcode, const ConvertOptions& options) {
  llvm::LLVMContext context;
  const llvm::StringRef bytes(reinterpret_cast<const char*>(bitcode.data()), bitcode.size());
  auto read = parse({bytes, "air"}, context);
  if (!read) return read.error();
  auto library = read_library(options.checked, context);
  if (!library) return library.error();
  llvm::Module& module = *read.value();
  auto signature = read_signature(module);
  if (!signature) return signature.error();
  strip_target(module, *library.value());
  number_instructions(module, signature.value().kernel);
  const auto threadgroup = drop_address_spaces(module);
  if (options.checked) {
    for (llvm::Function& f : module) {
      if (!f.isDeclaration()) f.addFnAttr(llvm::Attribute::SanitizeAddress);
    }
  }
  expand_pure(module, options.contraction);
  if (auto done = specialize(module, signature.value(), options); !done) return done.error();
  if (const auto unknown = call_collectives(module, *library.value()); !unknown.empty())
    return Error{"no body for " + joined(unknown)};
  place_threadgroup_variables(module, threadgroup);
  register_kernel(module, signature.value());
  if (auto linked = link_library(module, library.take(), options); !linked) return linked.error();
  if (const std::string wrong = verification(module); !wrong.empty()) return Error{"the converted module is wrong: " + wrong};
  std::string ir;
  llvm::raw_string_ostream(ir) << module;
  return ir;
}

}  // namespace metal_on_cpu::air
