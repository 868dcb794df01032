// Makes the header of a .safetensors file, byte for byte like the format's own writer, and the
// index of several files.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/status.h"
#include "checkpoints/convert/output_plan.h"

namespace metal_marlin {

/// Bytes of a tensor; MARLIN_E_UNSUPPORTED or MARLIN_E_SHAPE with its name if safetensors cannot
/// hold it.
Result<uint64_t> safetensors_output_bytes(const OutputTensor& tensor);
/// Lays out the tensors of file number `index`: fills in their offsets and the header and size of
/// the file. The order is by type, widest first, and then by name. This is the order of the
/// format's own writer, and it aligns each type. MARLIN_E_UNSUPPORTED for a header that readers
/// refuse because it has more than `most_header` bytes.
Status plan_safetensors(std::span<OutputTensor> tensors, size_t index, PlannedFile& file,
                        size_t most_header = 100'000'000);
/// The text of model.safetensors.index.json.
std::string safetensors_index(std::span<const OutputTensor> tensors,
                              std::span<const PlannedFile> files);

}  // namespace metal_marlin
