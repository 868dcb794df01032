#include "backends/cuda/objects.h"

#include <algorithm>
#include <utility>

#include "backends/cuda/policy.h"

namespace metal_marlin::cuda {
namespace {

LaunchRules rules_of(std::string_view name) {
  const gpu::ProductKernel* const row = gpu::product_kernel(policy(), name);
  if (row != nullptr && row->has_ring()) return {kRingSharedBytes, 0};
  if (row == nullptr || !row->shares_tiles()) return {};
  return {kTileSharedBytes, box_rows_of(static_cast<uint32_t>(row->rows))};
}

/// Launches overlap from compute capability 9.0 on (../../shaders/cuda/numbers.cuh).
constexpr int kFirstThatOverlaps = 90;

/// The begin of the names of modules whose kernels round weights (cmake/embed_kernels.cmake).
constexpr std::string_view kOfRounded = "w16_";

/// The name of the kernel that is compiled for these weights alone, if there is one.
std::string name_of_form(std::string_view name, std::string_view module,
                         std::span<const device::Constant> constants) {
  std::string text(name);
  if (!module.ends_with("16") && !name.starts_with("wgmma_")) return text;
  if (module.starts_with(kOfRounded)) module.remove_prefix(kOfRounded.size());
  const std::string_view codes = module.substr(0, module.rfind('_'));
  const auto kind = std::ranges::find(gpu::kKernelCodesNames, codes) - gpu::kKernelCodesNames;
  // Floats of 16 bits have such kernels for activations of their own type.
  const std::string_view activation = module.substr(module.rfind('_') + 1);
  if (codes.ends_with("f16") && codes != activation) return text;
  uint32_t values[MARLIN_CONSTANT_ROUTING + 1] = {};  // by index
  for (const device::Constant& constant : constants)
    if (constant.index < std::size(values)) values[constant.index] = constant.bits;
  const Form* const form =
      find_form(static_cast<gpu::KernelCodes>(kind), values[MARLIN_CONSTANT_SCALE_TYPE],
                values[MARLIN_CONSTANT_ZERO_KIND], values[MARLIN_CONSTANT_GROUP_SHIFT]);
  if (form == nullptr) return text;
  text.append("_s").append(std::to_string(form->scale));
  text.append("z").append(std::to_string(form->zero));
  text.append("g").append(std::to_string(form->shift));
  if (name.starts_with("ring_") && values[MARLIN_CONSTANT_ROUTING] != kRoutingNone) text += 'e';
  return text;
}

}  // namespace

CudaBuffer::~CudaBuffer() {
  const Current current(*context_);
  const Driver& driver = context_->driver();
  switch (origin_) {
    case Origin::device:
      static_cast<void>(driver.free(address_));
      break;
    case Origin::pinned:
      static_cast<void>(driver.free_pinned(host_));
      break;
    case Origin::registered:
      static_cast<void>(driver.unpin(host_));
      break;
    case Origin::hosts:
      break;
  }
}

Module::~Module() {
  const Current current(*context_);
  static_cast<void>(context_->driver().unload_module(handle_));
}

CudaKernel::CudaKernel(std::shared_ptr<Module> module, FunctionHandle function,
                       const LaunchRules& rules, uint32_t threads, uint32_t bytes,
                       std::span<const device::Constant> constants)
    : module_(std::move(module)),
      function_(function),
      rules_(rules),
      max_threads_(threads),
      threadgroup_bytes_(bytes) {
  for (const device::Constant& constant : constants)
    if (constant.index < kCudaConstants)
      constants_[constant.index] = static_cast<unsigned char>(constant.bits);
}

Shared::~Shared() {
  const Current current(*context);
  for (Kept& left : kept_) {
    static_cast<void>(context->driver().wait_for_event(left.event));
    static_cast<void>(context->driver().destroy_event(left.event));
  }
}

void Shared::keep(std::vector<Kept> left) {
  const Current current(*context);
  const Driver& driver = context->driver();
  std::vector<Kept> done;  // released without the lock
  const std::lock_guard lock(mutex_);
  for (Kept& one : left) kept_.push_back(std::move(one));
  const auto first_done = std::stable_partition(kept_.begin(), kept_.end(), [&](const Kept& one) {
    return driver.query_event(one.event) == kNotReady;
  });
  done.assign(std::make_move_iterator(first_done), std::make_move_iterator(kept_.end()));
  kept_.erase(first_done, kept_.end());
  for (const Kept& one : done) static_cast<void>(driver.destroy_event(one.event));
}

Result<std::shared_ptr<Module>> Shared::module_of(const KernelModule& found) {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<Module>& module = modules_[found.name];
  if (module != nullptr) return module;
  ModuleHandle handle = nullptr;
  MARLIN_RETURN_IF_ERROR(context->driver().check(
      context->driver().load_module(&handle, found.image.data()), "cuModuleLoadData"));
  module = std::make_shared<Module>(context, handle);
  return module;
}

Result<device::KernelRef> Shared::kernel(std::string_view name,
                                         std::span<const device::Constant> constants) {
  if (kernels_.modules.empty())
    return Status::error(MARLIN_E_NOT_FOUND, "kernel %.*s: there are no kernels",
                         static_cast<int>(name.size()), name.data());
  const auto last = kernels_.modules.end() - 1;
  const auto found = std::find_if(kernels_.modules.begin(), last, [&](const KernelModule& module) {
    const size_t at = name.find(module.name), end = at + module.name.size();
    return at != std::string_view::npos && at > 0 && name[at - 1] == '_' && end < name.size() &&
           name[end] == '_';
  });
  const Current current(*context);
  MARLIN_RETURN_IF_ERROR(current.status());
  MARLIN_ASSIGN(std::shared_ptr<Module> module, module_of(*found));
  const Driver& driver = context->driver();
  FunctionHandle function = nullptr;
  const std::string terminated = name_of_form(name, found->name, constants);
  const DriverError error = driver.function(&function, module->handle(), terminated.c_str());
  if (error == kNotFound)
    return Status::error(MARLIN_E_NOT_FOUND, "there is no kernel %s", terminated.c_str());
  MARLIN_RETURN_IF_ERROR(driver.check(error, "cuModuleGetFunction"));
  LaunchRules rules = rules_of(name);
  if (rules.shared_bytes != 0)
    MARLIN_RETURN_IF_ERROR(
        driver.check(driver.set_function_attribute(function, kMostDynamicBytes,
                                                   static_cast<int>(rules.shared_bytes)),
                     "cuFuncSetAttribute"));
  int threads = 0, bytes = 0, compiled_for = 0;
  MARLIN_RETURN_IF_ERROR(driver.check(
      driver.function_attribute(&compiled_for, kPtxVersion, function), "cuFuncGetAttribute"));
  rules.overlaps = compiled_for >= kFirstThatOverlaps;
  MARLIN_RETURN_IF_ERROR(driver.check(driver.function_attribute(&threads, kMostThreads, function),
                                      "cuFuncGetAttribute"));
  MARLIN_RETURN_IF_ERROR(driver.check(driver.function_attribute(&bytes, kSharedBytes, function),
                                      "cuFuncGetAttribute"));
  return device::KernelRef(std::make_shared<CudaKernel>(std::move(module), function, rules,
                                                        static_cast<uint32_t>(threads),
                                                        static_cast<uint32_t>(bytes), constants));
}

}  // namespace metal_marlin::cuda
