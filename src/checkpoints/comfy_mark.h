// What ComfyUI says about its quantized layers: {"format": "nvfp4"} for one of them, in a tensor
// NAME.comfy_quant, or {"layers": {NAME: {...}}} for all, in the metadata of a file.
#pragma once

#include <set>
#include <string>

#include "base/status.h"
#include "checkpoints/json.h"

namespace metal_marlin {

struct ComfyMark {
  std::set<std::string> formats;
  std::string unknown;  ///< a member that may change the values and is not known; or ""
};

/// Reads the members of the objects at this depth: 1 of one layer, 3 of all.
Result<ComfyMark> read_comfy_mark(const JsonText& json, int depth);

}  // namespace metal_marlin
