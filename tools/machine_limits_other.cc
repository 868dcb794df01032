// For processors without loops of their own: the portable loops of machine_limits.cc measure the
// limits.
#include "machine_limits.h"

namespace metal_marlin::tools {

std::vector<DotLoop> arch_dot_loops() { return {}; }
ReadKernel arch_read_kernel() { return nullptr; }

}  // namespace metal_marlin::tools
