#include "registration.h"

#include <llvm/IR/DebugInfoMetadata.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/InstIterator.h>
#include <llvm/Transforms/Utils/ModuleUtils.h>

#include <algorithm>
#include <limits>

#include "constants.h"

namespace metal_on_cpu::air {
namespace {

using Builder = llvm::IRBuilder<>;

// The layouts of prelude/msl/abi.h, which the structures below repeat.
static_assert(offsetof(msl::Param, kind) == 0 && offsetof(msl::Param, builtin) == 1 && offsetof(msl::Param, read_only) == 2 &&
              offsetof(msl::Param, enabled) == 3 && offsetof(msl::Param, index) == 4 && offsetof(msl::Param, reference) == 8 &&
              offsetof(msl::Param, name) == 16 && sizeof(msl::Param) == 24);
static_assert(offsetof(msl::Kernel, name) == 0 && offsetof(msl::Kernel, run) == 8 && offsetof(msl::Kernel, function) == 16 &&
              offsetof(msl::Kernel, params) == 24 && offsetof(msl::Kernel, param_count) == 32 &&
              offsetof(msl::Kernel, max_threads) == 36 && offsetof(msl::Kernel, file) == 40 &&
              offsetof(msl::Kernel, first_line) == 48 && offsetof(msl::Kernel, last_line) == 52 && sizeof(msl::Kernel) == 56);

class Registration {
 public:
  Registration(llvm::Module& module, const Signature& signature)
      : module_(module), signature_(signature), context_(module.getContext()), kernel_(*module.getFunction(signature.kernel)) {}

  void run() {
    kernel_.setLinkage(llvm::GlobalValue::InternalLinkage);
    kernel_.addFnAttr(llvm::Attribute::NoInline);
    llvm::Type *pointer = llvm::PointerType::get(context_, 0), *word = llvm::Type::getInt32Ty(context_);
    auto* type = llvm::StructType::get(context_, {pointer, pointer, pointer, pointer, word, word, pointer, word, word});
    const auto [first, last] = lines();
    llvm::Constant* fields[] = {text(signature_.kernel),
                                thunk(),
                                &kernel_,
                                params(),
                                number(static_cast<uint32_t>(signature_.arguments.size())),
                                number(signature_.max_threads),
                                text(file()),
                                number(first),
                                number(last)};
    auto* entry = new llvm::GlobalVariable(module_, type, true, llvm::GlobalValue::InternalLinkage,
                                           llvm::ConstantStruct::get(type, fields), "air.kernel");
    entry->setSection("msl_kernels");
    entry->setAlignment(llvm::Align(alignof(msl::Kernel)));
    llvm::appendToUsed(module_, {entry});
  }

 private:
  llvm::Constant* number(uint32_t n) const { return llvm::ConstantInt::get(llvm::Type::getInt32Ty(context_), n); }
  llvm::Constant* byte(unsigned n) const { return llvm::ConstantInt::get(llvm::Type::getInt8Ty(context_), n); }
  llvm::Constant* text(const std::string& s) {
    llvm::Constant* data = llvm::ConstantDataArray::getString(context_, s);
    auto* g = new llvm::GlobalVariable(module_, data->getType(), true, llvm::GlobalValue::PrivateLinkage, data, "air.text");
    g->setUnnamedAddr(llvm::GlobalValue::UnnamedAddr::Global);
    return g;
  }
  std::string file() const {
    return kernel_.getSubprogram() ? kernel_.getSubprogram()->getFilename().str() : signature_.kernel + ".air";
  }
  // Only lines that are the kernel's own, not those of functions inlined into it.
  std::pair<uint32_t, uint32_t> lines() const {
    uint32_t first = std::numeric_limits<uint32_t>::max(), last = 0;
    for (const llvm::Instruction& i : llvm::instructions(kernel_)) {
      const llvm::DebugLoc& at = i.getDebugLoc();
      if (!at || at->getScope()->getSubprogram() != kernel_.getSubprogram() || at.getLine() == 0) continue;
      first = std::min(first, at.getLine()), last = std::max(last, at.getLine());
    }
    return {std::min(first, last), last};
  }

  llvm::Constant* params() {
    llvm::Type *pointer = llvm::PointerType::get(context_, 0), *small = llvm::Type::getInt8Ty(context_),
               *word = llvm::Type::getInt32Ty(context_);
    auto* type = llvm::StructType::get(context_, {small, small, small, small, word, word, pointer});
    llvm::SmallVector<llvm::Constant*> entries;
    for (size_t i = 0; i < signature_.arguments.size(); ++i) {
      const Argument& a = signature_.arguments[i];
      const auto reference = static_cast<uint32_t>(kernel_.getArg(i)->getDereferenceableBytes());
      entries.push_back(llvm::ConstantStruct::get(
          type, {byte(a.kind), byte(a.kind == msl::kBuiltinParam ? a.builtin : 0), byte(a.read_only), byte(enabled(module_, a)),
                 number(static_cast<uint32_t>(a.index)), number(reference), text(a.name)}));
    }
    auto* array = llvm::ArrayType::get(type, entries.size());
    return new llvm::GlobalVariable(module_, array, true, llvm::GlobalValue::InternalLinkage,
                                    llvm::ConstantArray::get(array, entries), "air.params");
  }

  // void (const msl::Kernel&, const msl::Arguments&)
  llvm::Function* thunk() {
    llvm::Type* pointer = llvm::PointerType::get(context_, 0);
    auto* type = llvm::FunctionType::get(llvm::Type::getVoidTy(context_), {pointer, pointer}, false);
    llvm::Function* f = llvm::Function::Create(type, llvm::GlobalValue::InternalLinkage, "air.run", module_);
    Builder b(llvm::BasicBlock::Create(context_, "", f));
    llvm::SmallVector<llvm::Value*> values;
    for (size_t i = 0; i < signature_.arguments.size(); ++i)
      values.push_back(argument(b, f->getArg(1), signature_.arguments[i], kernel_.getArg(i)->getType()));
    b.CreateCall(&kernel_, values);
    b.CreateRetVoid();
    return f;
  }

  llvm::Value* argument(Builder& b, llvm::Value* all, const Argument& a, llvm::Type* type) {
    const auto at = [&](size_t offset) { return b.CreateConstInBoundsGEP1_64(b.getInt8Ty(), all, offset); };
    if (a.kind != msl::kBuiltinParam) {
      if (!enabled(module_, a)) return llvm::Constant::getNullValue(type);
      const size_t offset =
          a.kind == msl::kThreadgroupParam ? offsetof(msl::Arguments, threadgroup) : offsetof(msl::Arguments, buffers);
      llvm::Value* list = b.CreateLoad(b.getPtrTy(), at(offset));
      return b.CreateLoad(b.getPtrTy(), b.CreateConstInBoundsGEP1_64(b.getPtrTy(), list, static_cast<uint64_t>(a.index)));
    }
    const size_t offset = offsetof(msl::Arguments, builtins) + sizeof(msl::Uint3) * a.builtin;
    const auto component = [&](unsigned i) {
      return b.CreateZExtOrTrunc(b.CreateLoad(b.getInt32Ty(), at(offset + 4 * i)), type->getScalarType());
    };
    auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(type);
    if (!vector) return component(0);
    llvm::Value* value = llvm::PoisonValue::get(type);
    for (unsigned i = 0; i < vector->getNumElements(); ++i) value = b.CreateInsertElement(value, component(i), i);
    return value;
  }

  llvm::Module& module_;
  const Signature& signature_;
  llvm::LLVMContext& context_;
  llvm::Function& kernel_;
};

}  // namespace

void register_kernel(llvm::Module& module, const Signature& signature) { Registration(module, signature).run(); }

}  // namespace metal_on_cpu::air
