// The folder of the files that the library uses: clang's pass and the prelude. It lies beside the library, wherever that is.
#pragma once

#include <string>

namespace metal_on_cpu {

/// With a slash before it and none behind. Images that another copy of the library made name their own folder, so whoever looks
/// for the prelude's lines in an image looks for this part of the path.
inline constexpr char kPreludeFolder[] = "/metal-on-cpu/prelude";

/// The folders and the file as absolute paths.
const std::string& prelude_path();
const std::string& pass_path();

}  // namespace metal_on_cpu
