// ComfyUI marks its layers (comfy_mark.h), and stores some of them in other orders than others do.
#pragma once

#include "checkpoints/recognize.h"

namespace metal_marlin {

/// Whether the layer is marked. Its format must be `format`, and no member that could change the
/// values may be there; otherwise the layer gets a status.
bool take_comfy(const Finder& finder, std::string_view format, Finding& found);

}  // namespace metal_marlin
