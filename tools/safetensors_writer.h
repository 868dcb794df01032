// Writes float32 tensors to a .safetensors file as they are made, without holding them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

namespace metal_marlin::tools {

/// The file appears under its name, complete, at commit(); before that, and after any failure, there is only a temporary file
/// beside it, removed by the destructor. Members throw Failure.
class SafetensorsWriter {
 public:
  struct Tensor {
    std::string name;
    std::vector<int64_t> shape;
  };
  /// Writes the header: names and shapes must be known from the start, in the order of the data.
  SafetensorsWriter(std::string path, const std::vector<Tensor>& tensors);
  ~SafetensorsWriter();
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;

  /// The next `count` values, in the order of the tensors and row-major inside of each.
  void write(const float* values, size_t count);
  /// Renames the file into place; every announced value must have been written.
  void commit();

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  [[noreturn]] void fail(const char* doing) const;

  std::string path_, temporary_;
  std::unique_ptr<std::FILE, Close> file_;
  uint64_t left_ = 0;
};

}  // namespace metal_marlin::tools
