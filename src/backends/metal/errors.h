// NSError as Status.
#pragma once

#import <Metal/Metal.h>

#include <string_view>

#include "base/status.h"

namespace metal_marlin::metal {

/// "WHAT: DOMAIN CODE: description", native_code is the error's code. Running out of memory is
/// MARLIN_E_MEMORY, all else MARLIN_E_DEVICE.
Status to_status(NSError* error, const char* what);
NSString* to_string(std::string_view text);

}  // namespace metal_marlin::metal
