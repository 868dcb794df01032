#include "backends/metal/errors.h"

#include <TargetConditionals.h>

namespace metal_marlin::metal {
namespace {

// The errors of a command buffer that no change of the work would avoid: what the host can do.
const char* advice(NSError* error) {
  if (![error.domain isEqualToString:MTLCommandBufferErrorDomain]) return "";
  switch (error.code) {
    case MTLCommandBufferErrorNotPermitted:
      return "; the system lets no app in the background use the GPU: call again in the foreground";
    case MTLCommandBufferErrorAccessRevoked:
      return "; after too many hangs or timeouts the system lets this process use the GPU no more: "
             "restart it, or use the CPU";
#if !TARGET_OS_IPHONE
    case MTLCommandBufferErrorDeviceRemoved:
      return "; the device is gone: make a context on another one";
#endif
    case MTLCommandBufferErrorOutOfMemory:
      return "; free memory, and call again";
    default:
      return "";
  }
}

}  // namespace

Status to_status(NSError* error, const char* what) {
  if (error == nil) return Status::error(MARLIN_E_DEVICE, "%s: failed without saying why", what);
  const bool memory = [error.domain isEqualToString:MTLCommandBufferErrorDomain] &&
                      error.code == MTLCommandBufferErrorOutOfMemory;
  return Status::error(memory ? MARLIN_E_MEMORY : MARLIN_E_DEVICE, "%s: %s %ld: %s%s", what,
                       error.domain.UTF8String, static_cast<long>(error.code),
                       error.localizedDescription.UTF8String, advice(error))
      .with_native(static_cast<int32_t>(error.code));
}

Status unsupported(const Status& error) {
  return Status::error(MARLIN_E_UNSUPPORTED, "%s", error.message())
      .with_native(error.native_code());
}

NSString* to_string(std::string_view text) {
  NSString* made = [[NSString alloc] initWithBytes:text.data()
                                            length:text.size()
                                          encoding:NSUTF8StringEncoding];
  return made != nil ? made : @"";
}

}  // namespace metal_marlin::metal
