#include "backends/metal/errors.h"

namespace metal_marlin::metal {

Status to_status(NSError* error, const char* what) {
  if (error == nil) return Status::error(MARLIN_E_DEVICE, "%s: failed without saying why", what);
  const bool memory = [error.domain isEqualToString:MTLCommandBufferErrorDomain] &&
                      error.code == MTLCommandBufferErrorOutOfMemory;
  return Status::error(memory ? MARLIN_E_MEMORY : MARLIN_E_DEVICE, "%s: %s %ld: %s", what,
                       error.domain.UTF8String, static_cast<long>(error.code),
                       error.localizedDescription.UTF8String)
      .with_native(static_cast<int32_t>(error.code));
}

NSString* to_string(std::string_view text) {
  NSString* made = [[NSString alloc] initWithBytes:text.data()
                                            length:text.size()
                                          encoding:NSUTF8StringEncoding];
  return made != nil ? made : @"";
}

}  // namespace metal_marlin::metal
