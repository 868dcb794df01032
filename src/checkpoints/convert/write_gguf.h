// The header of a GGUF file, version 3.
#pragma once

#include <cstdint>
#include <span>

#include "base/status.h"
#include "checkpoints/checkpoint.h"
#include "checkpoints/convert/output_plan.h"

namespace metal_marlin {

/// Bytes of a tensor; MARLIN_E_UNSUPPORTED or MARLIN_E_SHAPE with its name if GGUF cannot hold it.
Result<uint64_t> gguf_output_bytes(const OutputTensor& tensor);
/// Lays out all tensors in their order: fills in their offsets and the header and size of the file.
/// If the input is a GGUF, the header has its key-values.
void plan_gguf(const Checkpoint& input, std::span<OutputTensor> tensors, PlannedFile& file);

}  // namespace metal_marlin
