// Writes float32 tensors to a .safetensors file one after another, without keeping them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "output_file.h"

namespace metal_marlin::tools {

/// Members throw Failure.
class SafetensorsWriter {
 public:
  struct Tensor {
    std::string name;
    std::vector<int64_t> shape;
  };
  /// Writes the header. Names and shapes must be known at this time, in the order of the data.
  /// `file` must outlive this object.
  SafetensorsWriter(OutputFile& file, const std::vector<Tensor>& tensors);

  /// Writes the next `count` values, in the order of the tensors and row-major inside each.
  void write(const float* values, size_t count);
  /// Commits the file; every announced value must have been written.
  void commit();

 private:
  OutputFile& file_;
  uint64_t left_ = 0;
};

}  // namespace metal_marlin::tools
