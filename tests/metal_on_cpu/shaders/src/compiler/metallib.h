// Kernels that Apple's compiler compiled: a .metallib instead of a source. The program air-to-native reads it.
#pragma once

#include <string>
#include <vector>

#include "../../include/metal_on_cpu/metal_on_cpu.h"
#include "compiler.h"

namespace metal_on_cpu {

/// The names of the library's kernels. The program is $METAL_ON_CPU_AIR_TO_NATIVE, or air-to-native in PATH.
Result<std::vector<std::string>> metallib_kernels(const std::string& path);
/// One kernel as LLVM IR for this processor, specialized, not optimized.
Result<std::string> metallib_ir(const std::string& path, const ImageRequest& request, const CompileOptions& options);

}  // namespace metal_on_cpu
