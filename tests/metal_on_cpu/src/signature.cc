// What kernels ask of a host, and compiling ahead of the first dispatch: for frameworks that answer such questions themselves.
#include "state.h"

namespace metal_on_cpu {

std::string Library::compile_errors() const {
  if (!state_->source.metallib.empty()) return {};  // each kernel of a .metallib is compiled on its own
  const auto loaded = state_->image({}, {}, true);
  return loaded ? std::string() : loaded.message();
}

Result<Signature> Kernel::signature() const {
  const auto loaded = state_->library->image(state_->name, state_->constants, true);
  if (!loaded) return loaded.error();
  const msl::Kernel* const kernel = loaded.value().image->find(state_->name);
  if (!kernel) return Error{state_->library->name + ": there is no kernel '" + state_->name + "'"};
  Signature signature;
  if (kernel->max_threads) signature.max_threads = kernel->max_threads;
  for (uint32_t i = 0; i < kernel->param_count; ++i) {
    const msl::Param& p = kernel->params[i];
    if (!p.enabled || p.kind == msl::kBuiltinParam) continue;
    signature.arguments.push_back(
        {p.kind == msl::kThreadgroupParam, static_cast<uint32_t>(p.index), p.name, p.read_only, p.reference});
  }
  return signature;
}

}  // namespace metal_on_cpu
