#include "operations.h"

#include <llvm/IR/DerivedTypes.h>
#include <llvm/IR/Instructions.h>

#include <optional>
#include <utility>

namespace metal_on_cpu::pass {
namespace {

constexpr std::pair<llvm::StringLiteral, Operation> kFunctions[] = {
    {"llvm.fma.", kFloatFma},    {"llvm.fmuladd.", kFloatFma}, {"llvm.sqrt.", kFloatDivide},   {"llvm.minnum.", kCompare},
    {"llvm.maxnum.", kCompare},  {"llvm.smin.", kCompare},     {"llvm.smax.", kCompare},       {"llvm.umin.", kCompare},
    {"llvm.umax.", kCompare},    {"llvm.fabs.", kBitwise},     {"llvm.copysign.", kBitwise},   {"llvm.ctpop.", kBitwise},
    {"llvm.ctlz.", kBitwise},    {"llvm.cttz.", kBitwise},     {"llvm.bitreverse.", kBitwise}, {"llvm.abs.", kBitwise},
    {"llvm.fshl.", kShift},      {"llvm.fshr.", kShift},       {"llvm.floor.", kConvert},      {"llvm.ceil.", kConvert},
    {"llvm.trunc.", kConvert},   {"llvm.rint.", kConvert},     {"llvm.round.", kConvert},      {"llvm.exp", kFloatSpecial},
    {"llvm.log", kFloatSpecial}, {"llvm.pow", kFloatSpecial},  {"llvm.sin", kFloatSpecial},    {"llvm.cos", kFloatSpecial},
    {"llvm.tan", kFloatSpecial}, {"expf", kFloatSpecial},      {"tanhf", kFloatSpecial},       {"tanf", kFloatSpecial},
    {"logf", kFloatSpecial},     {"powf", kFloatSpecial},      {"sinf", kFloatSpecial},        {"cosf", kFloatSpecial},
    {"exp2f", kFloatSpecial},    {"log2f", kFloatSpecial},     {"fmodf", kFloatSpecial},       {"atan2f", kFloatSpecial}};

std::optional<Operation> operation_of(const llvm::Instruction& i) {
  using I = llvm::Instruction;
  switch (i.getOpcode()) {
    case I::FAdd:
    case I::FSub:
      return kFloatAdd;
    case I::FMul:
      return kFloatMultiply;
    case I::FDiv:
      return kFloatDivide;
    case I::FRem:
      return kFloatSpecial;
    case I::Add:
    case I::Sub:
      return kIntegerAdd;
    case I::Mul:
      return kIntegerMultiply;
    case I::UDiv:
    case I::SDiv:
    case I::URem:
    case I::SRem:
      return kIntegerDivide;
    case I::FNeg:
    case I::And:
    case I::Or:
    case I::Xor:
      return kBitwise;
    case I::Shl:
    case I::LShr:
    case I::AShr:
      return kShift;
    case I::ICmp:
    case I::FCmp:
      return kCompare;
    case I::Select:
      return kSelect;
    case I::FPTrunc:
    case I::FPExt:
    case I::SIToFP:
    case I::UIToFP:
    case I::FPToSI:
    case I::FPToUI:
      return kConvert;
    default:
      break;
  }
  const auto* call = llvm::dyn_cast<llvm::CallInst>(&i);
  const llvm::Function* callee = call ? call->getCalledFunction() : nullptr;
  if (!callee) return {};
  for (const auto& [name, operation] : kFunctions) {
    if (callee->getName().starts_with(name)) return operation;
  }
  return {};
}

}  // namespace

OperationCounts count_operations(const llvm::BasicBlock& block) {
  OperationCounts counts{};
  for (const llvm::Instruction& i : block) {
    const auto operation = operation_of(i);
    if (!operation || i.hasMetadata(llvm::LLVMContext::MD_nosanitize)) continue;
    const auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(i.getType());
    counts[*operation] += vector ? vector->getNumElements() : 1;
  }
  return counts;
}

}  // namespace metal_on_cpu::pass
