// The header of a .safetensors file, byte for byte as the format's own writer makes it, and the
// index of several files.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/status.h"
#include "checkpoints/convert/output_plan.h"

namespace metal_marlin {

/// Bytes of a tensor; MARLIN_E_UNSUPPORTED or MARLIN_E_SHAPE with its name when safetensors cannot
/// hold it.
Result<uint64_t> safetensors_output_bytes(const OutputTensor& tensor);
/// Lays out the tensors of file number `index`: fills in their offsets and the file's header and
/// size. The order is by type, widest first, then by name, which is the order of the format's own
/// writer and aligns each type.
Status plan_safetensors(std::span<OutputTensor> tensors, size_t index, PlannedFile& file);
/// The text of model.safetensors.index.json.
std::string safetensors_index(std::span<const OutputTensor> tensors,
                              std::span<const PlannedFile> files);

}  // namespace metal_marlin
