// From one AIR module to LLVM IR for this processor, which any clang compiles into an image of the runtime.
#pragma once

#include <metal_on_cpu/result.h>
#include <string>

#include "metallib.h"
#include "options.h"

namespace metal_on_cpu::air {

/// The IR as text, verified and not yet optimized. In checked mode its functions ask for the address sanitizer's
/// instrumentation. `bitcode` is trusted as far as LLVM's reader trusts it: check its hash first (Metallib::module does).
/// Threads may call this at the same time.
Result<std::string> air_to_ir(Bytes bitcode, const ConvertOptions& options);

}  // namespace metal_on_cpu::air
