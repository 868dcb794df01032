// GGUF's blocks: Q4_0, Q4_1, Q8_0, MXFP4, NVFP4. A row of W is a row of blocks, which hold codes
// and scales together.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/status.h"

namespace metal_marlin {

/// Names of the block types that are read; the table of all types is in gguf_file.cc.
inline constexpr const char* kGgufQ4_0 = "Q4_0";
inline constexpr const char* kGgufQ4_1 = "Q4_1";
inline constexpr const char* kGgufQ8_0 = "Q8_0";
inline constexpr const char* kGgufMxfp4 = "MXFP4";
inline constexpr const char* kGgufNvfp4 = "NVFP4";

/// A type of blocks that are read.
struct GgufBlock {
  const char* type;
  marlin_format format;
  bool additive;  ///< has additive zeros
  int64_t elements, bytes;
  marlin_dtype scales;
};
/// Null when blocks of this type are not read.
const GgufBlock* gguf_block(std::string_view type);

}  // namespace metal_marlin
