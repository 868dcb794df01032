// bench --metal-counters: the counted work of the Metal kernels, from a program that the tests of
// the shaders build.
#pragma once

#include <string>
#include <vector>

namespace metal_marlin::tools {

/// Becomes that program, with these arguments. Returns only by throwing a Failure: there is no such
/// program.
[[noreturn]] void run_metal_counters(const std::vector<std::string>& arguments);

}  // namespace metal_marlin::tools
