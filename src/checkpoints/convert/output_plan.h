// The places of tensors in the files of a converted checkpoint, before anything is written. Sizes
// follow from shapes.
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
  uint64_t offset = 0;  ///< of its data in that file; the container's writer fills it in
};

/// One file that holds tensors.
struct PlannedFile {
  std::string name;    ///< in the output folder
  std::string header;  ///< its first bytes
  uint64_t bytes = 0;  ///< of the whole file
};

/// Bytes of a tensor, for both containers. A null type means that the container has no type of this
/// name.
Result<uint64_t> output_bytes(const ElementType* type, const OutputTensor& tensor,
                              const char* container);

/// Assigns each tensor to a file. `groups` are indices of tensors that belong together (the parts
/// of a layer, or one tensor), in the order of the input. A file has at most `limit` bytes of
/// tensors, unless one group alone has more. Returns the number of files, at least 1.
size_t split_by_size(std::span<OutputTensor> tensors, std::span<const std::vector<size_t>> groups,
                     uint64_t limit);

}  // namespace metal_marlin
