// A processor that nobody has written loops for: the portable ones of machine_limits.cc are its
// limits.
#include "machine_limits.h"

namespace metal_marlin::tools {

std::vector<DotLoop> arch_dot_loops() { return {}; }
ReadKernel arch_read_kernel() { return nullptr; }

}  // namespace metal_marlin::tools
