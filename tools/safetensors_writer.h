// Writes float32 tensors to a .safetensors file as they are made, without holding them.
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
  /// Writes the header: names and shapes must be known from the start, in the order of the data.
  /// `file` must outlive this.
  SafetensorsWriter(OutputFile& file, const std::vector<Tensor>& tensors);

  /// The next `count` values, in the order of the tensors and row-major inside of each.
  void write(const float* values, size_t count);
  /// Commits the file; every announced value must have been written.
  void commit();

 private:
  OutputFile& file_;
  uint64_t left_ = 0;
};

}  // namespace metal_marlin::tools
