// Images that outlive the cache: a shared object that says behind its end what it was made from. Loaders of ELF do not look
// there.
#pragma once

#include <string>

#include "../../include/metal_on_cpu/result.h"
#include "rewriter.h"

namespace metal_on_cpu {

struct ImageOrigin {
  std::string source;  // what messages call the shader
  bool checked = false;
  ConstantLiterals constants;
};

/// Copies the shared object `object` to `path`. Empty, or what is wrong.
std::string write_image_file(const std::string& path, const std::string& object, const ImageOrigin& origin);
/// Refuses files that are none, and those of another version of the compiler, the prelude or the runtime.
Result<ImageOrigin> read_image_file(const std::string& path);

}  // namespace metal_on_cpu
