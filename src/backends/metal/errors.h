// Converts an NSError to a Status.
#pragma once

#import <Metal/Metal.h>

#include <string_view>

#include "base/status.h"

namespace metal_marlin::metal {

/// The message is "WHAT: DOMAIN CODE: description", with advice where the system refuses work, and
/// native_code is the code of the error. Out of memory is MARLIN_E_MEMORY; all other errors are
/// MARLIN_E_DEVICE.
Status to_status(NSError* error, const char* what);
/// The same words and native_code as MARLIN_E_UNSUPPORTED: another kernel may serve.
Status unsupported(const Status& error);
NSString* to_string(std::string_view text);

}  // namespace metal_marlin::metal
