// What goes where in the files of a converted checkpoint, before any of it is written: sizes follow
// from shapes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "checkpoints/tensor_table.h"

namespace metal_marlin {

/// One tensor of an output file.
struct OutputTensor {
  std::string name;
  std::string_view type;      ///< as the container spells it: "F16", "U8", "Q4_0"
  std::vector<int64_t> dims;  ///< outermost first
  uint64_t bytes = 0;
  size_t file = 0;      ///< index of its PlannedFile
  uint64_t offset = 0;  ///< of its data in that file; a container's planner fills it in
};

/// One file that holds tensors.
struct PlannedFile {
  std::string name;    ///< in the output folder
  std::string header;  ///< its first bytes
  uint64_t bytes = 0;  ///< of the whole file
};

/// Bytes of a tensor; MARLIN_E_UNSUPPORTED or MARLIN_E_SHAPE with its name when the container
/// cannot hold it.
Result<uint64_t> safetensors_output_bytes(const OutputTensor& tensor);
Result<uint64_t> gguf_output_bytes(const OutputTensor& tensor);
/// What both share: null means that the container has no such type.
Result<uint64_t> output_bytes(const ElementType* type, const OutputTensor& tensor,
                              const char* container);

/// Lays out the tensors of file number `index`: fills in their offsets and the file's header and
/// size. safetensors: by type, widest first, then by name, which is the order of the format's own
/// writer and aligns each type.
Status plan_safetensors(std::span<OutputTensor> tensors, size_t index, PlannedFile& file);
/// GGUF v3: all tensors in their order, and the key-values of an input that is a GGUF.
Status plan_gguf(const Checkpoint& input, std::span<OutputTensor> tensors, PlannedFile& file);

/// Which file each tensor goes to. `groups` are indices of tensors that belong together (the parts
/// of a layer, or one tensor), in the order of the input. At most `limit` bytes of tensors a file
/// unless one group alone has more. Returns the number of files, at least 1.
size_t split_by_size(std::span<OutputTensor> tensors, std::span<const std::vector<size_t>> groups,
                     uint64_t limit);

/// The text of model.safetensors.index.json.
std::string safetensors_index(std::span<const OutputTensor> tensors,
                              std::span<const PlannedFile> files);

}  // namespace metal_marlin
