// ComfyUI marks its layers with NAME.comfy_quant, a text of JSON in bytes: {"format": "nvfp4"}.
#pragma once

#include "checkpoints/recognize.h"

namespace metal_marlin {

/// Whether the layer has the mark. The format must be `format`, and no member that could change the
/// values may be there; otherwise the layer gets a status.
bool take_comfy(const Finder& finder, std::string_view format, Finding& found);

}  // namespace metal_marlin
