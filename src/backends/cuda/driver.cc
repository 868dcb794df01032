#include "backends/cuda/driver.h"

#include <cstring>

#include "base/system.h"

namespace metal_marlin::cuda {
namespace {

/// The system returns a pointer to an object, which POSIX lets stand for a function.
template <class Function>
bool find(void* library, const char* name, Function& to) {
  void* const symbol = system::find_symbol(library, name);
  std::memcpy(static_cast<void*>(&to), static_cast<const void*>(&symbol), sizeof symbol);
  return symbol != nullptr;
}

}  // namespace

Status Driver::check(DriverError error, const char* what) const {
  if (error == kSuccess) return {};
  const char *name = nullptr, *text = nullptr;
  if (error_name(error, &name) != kSuccess || name == nullptr) name = "unknown error";
  if (error_text(error, &text) != kSuccess || text == nullptr) text = "the driver does not know it";
  return Status::error(error == kOutOfMemory ? MARLIN_E_MEMORY : MARLIN_E_DEVICE, "%s: %s (%d): %s",
                       what, name, error, text)
      .with_native(error);
}

Result<Driver> load_driver(const char* library) {
  std::string why;
  void* const handle = system::open_library(library, why);
  if (handle == nullptr)
    return Status::error(MARLIN_E_NO_DEVICE, "no NVIDIA driver: %s", why.c_str());
  Driver driver;
#define MARLIN_CUDA_FIND(member, name, parameters) \
  if (!find(handle, name, driver.member))          \
    return Status::error(MARLIN_E_NO_DEVICE, "%s has no %s: the driver is too old", library, name);
  MARLIN_CUDA_FUNCTIONS(MARLIN_CUDA_FIND)
#undef MARLIN_CUDA_FIND
  const DriverError error = driver.init(0);
  if (error == kSuccess) return driver;
  return Status::error(MARLIN_E_NO_DEVICE, "%s", driver.check(error, "cuInit").message())
      .with_native(error);
}

Result<std::shared_ptr<Context>> Context::retain(const Driver& driver, DriverDevice device) {
  ContextHandle handle = nullptr;
  MARLIN_RETURN_IF_ERROR(driver.check(driver.retain(&handle, device), "cuDevicePrimaryCtxRetain"));
  return std::shared_ptr<Context>(new Context(driver, device, handle, true));
}

Context::~Context() {
  if (primary_) static_cast<void>(driver_.release(device_));
}

}  // namespace metal_marlin::cuda
