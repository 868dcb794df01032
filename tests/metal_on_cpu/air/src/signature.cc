#include "signature.h"

#include <llvm/IR/Constants.h>
#include <llvm/IR/Metadata.h>

#include <optional>
#include <string_view>

namespace metal_on_cpu::air {
namespace {

struct BuiltinName {
  std::string_view air;
  msl::Builtin builtin;
};
constexpr BuiltinName kBuiltins[] = {{"thread_position_in_grid", msl::kThreadPositionInGrid},
                                     {"threadgroup_position_in_grid", msl::kThreadgroupPositionInGrid},
                                     {"thread_position_in_threadgroup", msl::kThreadPositionInThreadgroup},
                                     {"thread_index_in_threadgroup", msl::kThreadIndexInThreadgroup},
                                     {"thread_index_in_simdgroup", msl::kThreadIndexInSimdgroup},
                                     {"simdgroup_index_in_threadgroup", msl::kSimdgroupIndexInThreadgroup},
                                     {"simdgroups_per_threadgroup", msl::kSimdgroupsPerThreadgroup},
                                     {"dispatch_simdgroups_per_threadgroup", msl::kDispatchSimdgroupsPerThreadgroup},
                                     {"threads_per_simdgroup", msl::kThreadsPerSimdgroup},
                                     {"thread_execution_width", msl::kThreadsPerSimdgroup},
                                     {"threads_per_threadgroup", msl::kThreadsPerThreadgroup},
                                     {"dispatch_threads_per_threadgroup", msl::kDispatchThreadsPerThreadgroup},
                                     {"threads_per_grid", msl::kThreadsPerGrid},
                                     {"threadgroups_per_grid", msl::kThreadgroupsPerGrid},
                                     {"quadgroup_index_in_threadgroup", msl::kQuadgroupIndexInThreadgroup},
                                     {"thread_index_in_quadgroup", msl::kThreadIndexInQuadgroup},
                                     {"quadgroups_per_threadgroup", msl::kQuadgroupsPerThreadgroup},
                                     {"dispatch_quadgroups_per_threadgroup", msl::kDispatchQuadgroupsPerThreadgroup},
                                     {"grid_origin", msl::kGridOrigin},
                                     {"grid_size", msl::kGridSize}};
constexpr int64_t kThreadgroupSpace = 3;

// The operands of a metadata node, by kind; a wrong kind or a missing operand gives nothing.
class Node {
 public:
  explicit Node(const llvm::Metadata* m) : node_(llvm::dyn_cast_or_null<llvm::MDNode>(m)) {}
  explicit operator bool() const { return node_ != nullptr; }
  unsigned size() const { return node_ ? node_->getNumOperands() : 0; }
  const llvm::Metadata* at(unsigned i) const { return i < size() ? node_->getOperand(i).get() : nullptr; }
  std::string string(unsigned i) const {
    const auto* s = llvm::dyn_cast_or_null<llvm::MDString>(at(i));
    return s ? s->getString().str() : std::string();
  }
  int64_t number(unsigned i, int64_t otherwise) const {
    const auto* c = llvm::dyn_cast_or_null<llvm::ConstantAsMetadata>(at(i));
    const auto* n = c ? llvm::dyn_cast<llvm::ConstantInt>(c->getValue()) : nullptr;
    if (!n || n->getBitWidth() > 64) return otherwise;
    return n->getSExtValue();
  }
  std::string global(unsigned i) const {
    const auto* c = llvm::dyn_cast_or_null<llvm::ConstantAsMetadata>(at(i));
    const auto* g = c ? llvm::dyn_cast<llvm::GlobalValue>(c->getValue()->stripPointerCasts()) : nullptr;
    return g ? g->getName().str() : std::string();
  }
  /// The operand behind the string `key`.
  std::optional<unsigned> after(std::string_view key) const {
    for (unsigned i = 0; i + 1 < size(); ++i) {
      if (string(i) == key) return i + 1;
    }
    return std::nullopt;
  }

 private:
  const llvm::MDNode* node_;
};

Result<Argument> read_argument(const Node& node) {
  Argument a;
  if (const auto at = node.after("air.arg_name")) a.name = node.string(*at);
  if (const auto at = node.after("air.function_constant")) a.predicate = Node(node.at(*at)).global(0);
  for (unsigned i = 0; i < node.size(); ++i) {
    const std::string tag = node.string(i);
    if (tag == "air.buffer" || tag == "air.indirect_buffer") {
      const auto index = node.after("air.location_index"), space = node.after("air.address_space");
      const int64_t location = index ? node.number(*index, -1) : -1, number = space ? node.number(*space, -1) : -1;
      if (location < 0 || location > 30 || number < 0)
        return Error{"argument '" + a.name + "': its metadata gives no index in 0..30 or no address space"};
      a.kind = number == kThreadgroupSpace ? msl::kThreadgroupParam : msl::kBufferParam;
      a.index = static_cast<int32_t>(location);
      for (unsigned j = 0; j < node.size(); ++j) a.read_only = a.read_only || node.string(j) == "air.read";
      return a;
    }
    for (const BuiltinName& b : kBuiltins) {
      if (tag.starts_with("air.") && std::string_view(tag).substr(4) == b.air) {
        a.kind = msl::kBuiltinParam, a.builtin = b.builtin, a.read_only = true;
        return a;
      }
    }
  }
  std::string kind = node.string(1);
  return Error{"argument '" + a.name + "': nothing here stands for " + (kind.empty() ? "its kind" : kind)};
}

}  // namespace

Result<Signature> read_signature(const llvm::Module& module) {
  const llvm::NamedMDNode* kernels = module.getNamedMetadata("air.kernel");
  if (!kernels || kernels->getNumOperands() != 1) {
    return Error{"expected one kernel in the module's metadata, found " +
                 std::to_string(kernels ? kernels->getNumOperands() : 0)};
  }
  const Node kernel(kernels->getOperand(0));
  Signature signature;
  signature.kernel = kernel.global(0);
  const llvm::Function* function = module.getFunction(signature.kernel);
  if (!function || function->isDeclaration()) return Error{"the kernel '" + signature.kernel + "' has no body"};
  const Node arguments(kernel.at(2));
  if (arguments.size() != function->arg_size()) {
    return Error{"the metadata describes " + std::to_string(arguments.size()) + " arguments, the function has " +
                 std::to_string(function->arg_size())};
  }
  for (unsigned i = 0; i < arguments.size(); ++i) {
    auto argument = read_argument(Node(arguments.at(i)));
    if (!argument) return argument.error();
    const bool pointer = function->getArg(i)->getType()->isPointerTy();
    if (pointer != (argument.value().kind != msl::kBuiltinParam))
      return Error{"argument " + std::to_string(i) + ": its type contradicts its metadata"};
    signature.arguments.push_back(argument.take());
  }
  for (unsigned i = 3; i < kernel.size(); ++i) {
    const Node property(kernel.at(i));
    if (property.string(0) == "air.max_work_group_size") signature.max_threads = static_cast<uint32_t>(property.number(1, 0));
  }
  if (const llvm::NamedMDNode* constants = module.getNamedMetadata("air.function_constants")) {
    for (const llvm::MDNode* entry : constants->operands()) {
      const Node node(entry);
      FunctionConstant c{node.global(0), node.string(1), node.string(2), 0};
      const int64_t index = node.number(3, -1);
      if (c.global.empty() || index < 0 || index > 65535)
        return Error{"a function constant's metadata gives no variable or no index in 0..65535"};
      c.index = static_cast<uint32_t>(index);
      signature.constants.push_back(std::move(c));
    }
  }
  return signature;
}

}  // namespace metal_on_cpu::air
