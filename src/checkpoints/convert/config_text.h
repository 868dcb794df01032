// The JSON files beside quantized safetensors.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "checkpoints/convert/json_writer.h"

namespace metal_marlin {

/// The new config.json: a copy of the input's (`old`, or "" if there is none), in which the object
/// that `quantization` writes replaces quantization_config.
Result<std::string> config_text(std::string_view old, const char* key,
                                const std::function<void(JsonWriter&)>& quantization);

}  // namespace metal_marlin
