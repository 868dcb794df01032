// The library's own kernels as they are embedded, but fewer instances: each set of constants compiles a whole file. In a
// program with few_kernels.cc embedded_shaders() gives these.
#pragma once

namespace metal_marlin::metal {

/// Macros of shaders/metal/instances.h, a line each; the program defines it.
extern const char* const kFewKernels;

}  // namespace metal_marlin::metal
