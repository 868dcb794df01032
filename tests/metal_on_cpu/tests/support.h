// What the tests of this component share.
#pragma once

#include <metal_on_cpu/metal_on_cpu.h>

#include <string>

namespace metal_on_cpu {

inline std::string shader_path(const std::string& name) { return std::string(METAL_ON_CPU_SHADERS) + "/" + name; }

}  // namespace metal_on_cpu
