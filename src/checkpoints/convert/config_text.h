// The JSON files beside quantized safetensors.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "checkpoints/convert/json_writer.h"

namespace metal_marlin {

/// config.json: the input's (`old`, or "" when there is none) with its quantization_config replaced
/// by the object that `quantization` writes, all else as it was.
Result<std::string> config_text(std::string_view old,
                                const std::function<void(JsonWriter&)>& quantization);

}  // namespace metal_marlin
