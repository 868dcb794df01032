// Where the prelude and clang's pass are.
#pragma once

#include <string>

namespace metal_on_cpu {

/// With a slash before it and none behind. Images that another copy of the test-bed made name their own folder, so whoever
/// looks for the prelude's lines in an image looks for this part of the path.
inline constexpr char kPreludeFolder[] = "/metal_on_cpu/shaders/prelude";

inline std::string prelude_path() { return METAL_ON_CPU_PRELUDE; }
inline std::string pass_path() { return METAL_ON_CPU_PASS; }

}  // namespace metal_on_cpu
