#include "checkpoints/convert/output_plan.h"

namespace metal_marlin {

Result<uint64_t> output_bytes(const ElementType* type, const OutputTensor& tensor,
                              const char* container) {
  if (type == nullptr) {
    return Status::error(MARLIN_E_UNSUPPORTED, "tensor '%.120s': %s has no type %.*s",
                         tensor.name.c_str(), container, static_cast<int>(tensor.type.size()),
                         tensor.type.data());
  }
  const auto bytes = tensor_bytes(*type, tensor.dims);
  if (bytes) return *bytes;
  return Status::error(MARLIN_E_SHAPE,
                       "tensor '%.120s': its size is no whole number of bytes below 2^64",
                       tensor.name.c_str());
}

size_t split_by_size(std::span<OutputTensor> tensors, std::span<const std::vector<size_t>> groups,
                     uint64_t limit) {
  size_t file = 0;
  uint64_t filled = 0;
  for (const std::vector<size_t>& group : groups) {
    uint64_t bytes = 0;
    for (const size_t t : group) bytes += tensors[t].bytes;
    if (filled != 0 && (bytes > limit || filled > limit - bytes)) {
      ++file;
      filled = 0;
    }
    filled += bytes;
    for (const size_t t : group) tensors[t].file = file;
  }
  return file + 1;
}

}  // namespace metal_marlin
