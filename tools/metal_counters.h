// bench --metal-counters: prints the counted work of the Metal kernels. The tests of the shaders
// build the program that counts.
#pragma once

#include <string>
#include <vector>

namespace metal_marlin::tools {

/// Replaces this process by that program, with these arguments. Throws a Failure if there is no
/// such program, and does not return otherwise.
[[noreturn]] void run_metal_counters(const std::vector<std::string>& arguments);

}  // namespace metal_marlin::tools
