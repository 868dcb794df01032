// Opening a checkpoint from any Folder: how tests open files that exist in memory only.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "checkpoints/checkpoint.h"
#include "checkpoints/folder.h"

namespace metal_marlin {

/// `file` is a .safetensors, .safetensors.index.json or .gguf of the folder; what else it needs is
/// read from there.
Result<std::unique_ptr<Checkpoint>> open_checkpoint(
    std::unique_ptr<Folder> folder, const std::string& file, marlin_layout override_layout,
    marlin_gptq_zero_f zero_f = MARLIN_GPTQ_ZERO_F_AUTO);

}  // namespace metal_marlin
