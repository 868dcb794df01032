// For processors without loops of their own: the portable loops of machine_limits.cc measure the
// limits.
#include "machine_limits.h"

namespace metal_marlin::tools {

std::vector<DotLoop> arch_dot_loops() { return {}; }
std::vector<ReadKernel> arch_read_kernels() { return {}; }

}  // namespace metal_marlin::tools
