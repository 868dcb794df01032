// What kernels ask of a host, and compiling ahead of the first dispatch: for frameworks that answer such questions themselves.
#include <algorithm>
#include <utility>

#include "state.h"

namespace metal_on_cpu {
namespace {

// Runs one thread of the kernel, with buffers of zeros, for what it declares on its way. What it finds is no finding: the
// arguments are not those of a host.
size_t threadgroup_variables(Dispatch probe, const std::vector<Signature::Argument>& arguments) {
  constexpr size_t kBytes = 4096;
  constexpr uint64_t kSteps = 100'000;
  std::map<uint32_t, std::vector<std::byte>> zeros;
  for (const Signature::Argument& a : arguments) {
    auto& bytes = zeros[a.index];
    bytes.resize(std::max({bytes.size(), a.bytes, kBytes}));
    probe.buffer(static_cast<int>(a.index), bytes);
  }
  const auto report = probe.groups(1).threads(1).step_budget(kSteps).check().run();
  return report ? report.value().counters.threadgroup_memory : 0;
}

}  // namespace

std::string Library::compile_errors() const {
  ConstantLiterals zeros;  // without a value an argument that depends on a constant can neither be there nor be left out
  for (const uint32_t index : state_->source.constants) zeros[index] = "0";
  return state_->compile_all(zeros);
}

Result<Signature> Kernel::signature() const {
  auto loaded = state_->library->image(state_->name, state_->constants, true);
  if (!loaded) return loaded.error();
  const msl::Kernel* const kernel = loaded.value()->find(state_->name);
  if (!kernel) return Error{state_->library->name + ": there is no kernel '" + state_->name + "'"};
  const GivenConstants given(state_->values);
  Signature signature;
  if (kernel->max_threads) signature.max_threads = kernel->max_threads;
  for (uint32_t i = 0; i < kernel->param_count; ++i) {
    const msl::Param& p = kernel->params[i];
    if (p.kind == msl::kBuiltinParam || !msl::exists(p)) continue;
    signature.arguments.push_back({static_cast<uint32_t>(p.index), p.name, p.reference});
  }
  Dispatch probe = dispatch();
  probe.state_->reports = false;
  signature.threadgroup_memory = threadgroup_variables(std::move(probe), signature.arguments);
  return signature;
}

}  // namespace metal_on_cpu
