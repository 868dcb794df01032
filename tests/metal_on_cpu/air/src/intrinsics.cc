#include "intrinsics.h"

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/InstIterator.h>
#include <llvm/IR/Intrinsics.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "library_call.h"

namespace metal_on_cpu::air {
namespace {

using llvm::CallInst;
using llvm::Type;
using llvm::Value;
using llvm::Intrinsic::ID;
using Builder = llvm::IRBuilder<>;

struct Known {
  std::string_view name;
  ID intrinsic;
};
// The fast_ form of a name and the precise one are the same here.
constexpr Known kUnary[] = {
    {"exp", llvm::Intrinsic::exp},     {"exp2", llvm::Intrinsic::exp2},   {"log", llvm::Intrinsic::log},
    {"log2", llvm::Intrinsic::log2},   {"log10", llvm::Intrinsic::log10}, {"sqrt", llvm::Intrinsic::sqrt},
    {"sin", llvm::Intrinsic::sin},     {"cos", llvm::Intrinsic::cos},     {"fabs", llvm::Intrinsic::fabs},
    {"floor", llvm::Intrinsic::floor}, {"ceil", llvm::Intrinsic::ceil},   {"trunc", llvm::Intrinsic::trunc},
    {"rint", llvm::Intrinsic::rint},   {"round", llvm::Intrinsic::round}};
constexpr Known kBinary[] = {{"pow", llvm::Intrinsic::pow},
                             {"powr", llvm::Intrinsic::pow},
                             {"fmax", llvm::Intrinsic::maxnum},
                             {"fmin", llvm::Intrinsic::minnum}};
// Functions of the host's C library, float only.
constexpr std::string_view kHost[] = {"tan",  "sinh",  "cosh",  "tanh",  "asin", "acos",
                                      "atan", "asinh", "acosh", "atanh", "atan2"};

template <size_t N>
const Known* find(const Known (&table)[N], std::string_view name) {
  const auto* at = std::find_if(std::begin(table), std::end(table), [&](const Known& k) { return k.name == name; });
  return at == std::end(table) ? nullptr : at;
}

std::vector<std::string_view> words_of(std::string_view name) {
  std::vector<std::string_view> words;
  for (size_t at = 0; at <= name.size();) {
    const size_t dot = std::min(name.find('.', at), name.size());
    words.push_back(name.substr(at, dot - at));
    at = dot + 1;
  }
  return words;
}

Type* with_float_elements(Type* type) {
  Type* element = Type::getFloatTy(type->getContext());
  if (auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(type))
    return llvm::FixedVectorType::get(element, vector->getNumElements());
  return element;
}

// air.convert.TO.type.FROM.type, each of f, s, u.
Value* convert(Builder& b, Value* x, Type* to, char to_kind, char from_kind) {
  if (from_kind != 'f') return from_kind == 's' ? b.CreateSIToFP(x, to) : b.CreateUIToFP(x, to);
  if (to_kind == 'f') {
    const unsigned before = x->getType()->getScalarSizeInBits(), after = to->getScalarSizeInBits();
    if (x->getType() == to) return x;
    if (before < after) return b.CreateFPExt(x, to);
    if (before > after) return b.CreateFPTrunc(x, to);
    return b.CreateFPTrunc(b.CreateFPExt(x, with_float_elements(to)), to);  // half and bfloat
  }
  if (to->getScalarSizeInBits() == 1) return b.CreateFCmpUNE(x, llvm::Constant::getNullValue(x->getType()));
  return b.CreateIntrinsic(to_kind == 's' ? llvm::Intrinsic::fptosi_sat : llvm::Intrinsic::fptoui_sat, {to, x->getType()}, {x});
}

Value* host_function(Builder& b, CallInst& call, std::string_view name) {
  llvm::FunctionType* type = call.getFunctionType();
  llvm::FunctionCallee function = call.getModule()->getOrInsertFunction(std::string(name) + "f", type);
  if (auto* f = llvm::dyn_cast<llvm::Function>(function.getCallee()))
    f->setDoesNotAccessMemory(), f->setDoesNotThrow(), f->setWillReturn();
  return b.CreateCall(function, llvm::SmallVector<Value*>(call.args()));
}

Value* multiply_add(Builder& b, Value* x, Value* y, Value* z, const Contraction& contraction) {
  Type* type = x->getType();
  Type* element = type->getScalarType();
  if (!(element->isFloatTy() ? contraction.f32 : element->isHalfTy() ? contraction.f16 : contraction.bf16))
    return b.CreateFAdd(b.CreateFMul(x, y), z);
  if (element->isFloatTy()) return b.CreateIntrinsic(llvm::Intrinsic::fma, {type}, {x, y, z});
  // The host has no such instruction, and LLVM would round twice.
  const char* const name = element->isHalfTy() ? "air_fma_f16" : "air_fma_bf16";
  auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(type);
  if (!vector) return call_library(b, name, type, {x, y, z});
  Value* result = llvm::PoisonValue::get(type);
  for (unsigned i = 0; i < vector->getNumElements(); ++i) {
    Value* each = call_library(b, name, element,
                               {b.CreateExtractElement(x, i), b.CreateExtractElement(y, i), b.CreateExtractElement(z, i)});
    result = b.CreateInsertElement(result, each, i);
  }
  return result;
}

// The order is not documented; this is the source route's.
Value* dot(Builder& b, Value* x, Value* y, const Contraction& contraction) {
  Value* sum = b.CreateFMul(b.CreateExtractElement(x, uint64_t{0}), b.CreateExtractElement(y, uint64_t{0}));
  const unsigned n = llvm::cast<llvm::FixedVectorType>(x->getType())->getNumElements();
  for (unsigned i = 1; i < n; ++i)
    sum = multiply_add(b, b.CreateExtractElement(x, i), b.CreateExtractElement(y, i), sum, contraction);
  return sum;
}

Value* expand_float(Builder& b, CallInst& call, std::string_view name, const Contraction& contraction) {
  Type* type = call.getType();
  if (name.starts_with("fast_")) name.remove_prefix(5);
  const llvm::SmallVector<Value*> args(call.args());
  if (const Known* k = find(kUnary, name); k && args.size() == 1) return b.CreateIntrinsic(k->intrinsic, {type}, args);
  if (const Known* k = find(kBinary, name); k && args.size() == 2) return b.CreateIntrinsic(k->intrinsic, {type}, args);
  if (name == "fma") return multiply_add(b, args[0], args[1], args[2], {true, true, true});
  if (name == "fmod") return b.CreateFRem(args[0], args[1]);
  if (name == "dot") return dot(b, args[0], args[1], contraction);
  if (name == "ldexp") return b.CreateIntrinsic(llvm::Intrinsic::ldexp, {type, args[1]->getType()}, args);
  if (name == "rsqrt")
    return b.CreateFDiv(llvm::ConstantFP::get(type, 1), b.CreateIntrinsic(llvm::Intrinsic::sqrt, {type}, args));
  if (type->isFloatTy() && std::find(std::begin(kHost), std::end(kHost), name) != std::end(kHost))
    return host_function(b, call, name);
  return nullptr;
}

Value* expand_integer(Builder& b, CallInst& call, std::string_view name, bool is_signed) {
  const llvm::SmallVector<Value*> args(call.args());
  const auto least = is_signed ? llvm::Intrinsic::smin : llvm::Intrinsic::umin,
             most = is_signed ? llvm::Intrinsic::smax : llvm::Intrinsic::umax;
  if (name == "min") return b.CreateBinaryIntrinsic(least, args[0], args[1]);
  if (name == "max") return b.CreateBinaryIntrinsic(most, args[0], args[1]);
  if (name == "clamp") return b.CreateBinaryIntrinsic(least, b.CreateBinaryIntrinsic(most, args[0], args[1]), args[2]);
  if (name == "abs" && is_signed) return b.CreateIntrinsic(llvm::Intrinsic::abs, {call.getType()}, {args[0], b.getFalse()});
  return nullptr;
}

// The value that the call stands for; nullptr: not one of these.
Value* expand(CallInst& call, const Contraction& contraction) {
  const llvm::Function* callee = call.getCalledFunction();
  if (!callee) return nullptr;
  Builder b(&call);
  if (callee->getIntrinsicID() == llvm::Intrinsic::fmuladd) {
    return multiply_add(b, call.getArgOperand(0), call.getArgOperand(1), call.getArgOperand(2), contraction);
  }
  const auto words = words_of(std::string_view(callee->getName()));
  if (words[0] != "air" || words.size() < 3) return nullptr;
  const std::string_view name = words[1];
  if (name == "convert" && words.size() == 6)
    return convert(b, call.getArgOperand(0), call.getType(), words[2][0], words[4][0]);
  // Only asked where the shader promises it.
  if (name == "is_uniform") return b.getTrue();
  if (name == "get_simdgroup_size") return llvm::ConstantInt::get(call.getType(), 32);
  if (name == "normalize_function_constant_predicate") {
    return b.CreateZExt(b.CreateICmpNE(call.getArgOperand(0), llvm::Constant::getNullValue(call.getType())), call.getType());
  }
  if (words.size() == 4 && (words[2] == "s" || words[2] == "u")) return expand_integer(b, call, name, words[2] == "s");
  return words.size() == 3 ? expand_float(b, call, name, contraction) : nullptr;
}

}  // namespace

void expand_pure(llvm::Module& module, const Contraction& contraction) {
  std::vector<CallInst*> calls;
  for (llvm::Function& f : module) {
    for (llvm::Instruction& i : llvm::instructions(f)) {
      if (auto* call = llvm::dyn_cast<CallInst>(&i)) calls.push_back(call);
    }
  }
  for (CallInst* call : calls) {
    if (Value* value = expand(*call, contraction)) {
      call->replaceAllUsesWith(value);
      call->eraseFromParent();
    }
  }
}

}  // namespace metal_on_cpu::air
