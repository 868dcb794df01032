#include "backends/cuda/objects.h"

#include <algorithm>
#include <utility>

#include "backends/cuda/policy.h"

namespace metal_marlin::cuda {
namespace {

#define MARLIN_CUDA_PRODUCT(...)
#define MARLIN_HOPPER_PRODUCT(family, suffix, m_min, m_max, rows, columns, threads, shared_bytes, \
                              activation_bytes, shares_tiles, ...)                                \
  {family "_", "_" suffix, {shared_bytes, (shares_tiles) ? box_rows_of(rows) : 0}},
struct HopperProduct {
  std::string_view begin, end;  // of the kernel's name
  LaunchRules rules;
};
constexpr HopperProduct kHopperProducts[] = {
#include "backends/cuda/kernels.inc"
};
#undef MARLIN_CUDA_PRODUCT
#undef MARLIN_HOPPER_PRODUCT

LaunchRules rules_of(std::string_view name) {
  for (const HopperProduct& product : kHopperProducts)
    if (name.starts_with(product.begin) && name.ends_with(product.end)) return product.rules;
  return {};
}

/// Launches overlap from compute capability 9.0 on (../../shaders/cuda/numbers.cuh).
constexpr int kFirstThatOverlaps = 90;

/// The begin of the names of modules whose kernels round weights (cmake/embed_kernels.cmake).
constexpr std::string_view kOfRounded = "w16_";

/// The name of the kernel that is compiled for these weights alone, if there is one.
std::string name_of_form(std::string_view name, std::string_view module,
                         std::span<const device::Constant> constants) {
  std::string text(name);
  if (!module.ends_with("16")) return text;
  if (module.starts_with(kOfRounded)) module.remove_prefix(kOfRounded.size());
  std::span<const Form> forms;
  for (int codes = 0; codes < gpu::kKernelCodes; ++codes)
    if (module.substr(0, module.rfind('_')) == gpu::kKernelCodesNames[codes])
      forms = forms_of(static_cast<gpu::KernelCodes>(codes));
  // Floats of 16 bits have such kernels for activations of their own type.
  const std::string_view activation = module.substr(module.rfind('_') + 1);
  if (module.starts_with("f16_") || module.starts_with("bf16_"))
    if (!module.starts_with(activation)) return text;
  uint32_t values[MARLIN_CONSTANT_ROUTING + 1] = {};  // by index
  for (const device::Constant& constant : constants)
    if (constant.index < std::size(values)) values[constant.index] = constant.bits;
  const Form form{values[MARLIN_CONSTANT_SCALE_TYPE], values[MARLIN_CONSTANT_ZERO_KIND],
                  values[MARLIN_CONSTANT_GROUP_SHIFT]};
  if (std::find(forms.begin(), forms.end(), form) == forms.end()) return text;
  text.append("_s").append(std::to_string(form.scale));
  text.append("z").append(std::to_string(form.zero));
  text.append("g").append(std::to_string(form.shift));
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
