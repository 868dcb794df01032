// A loaded image: the kernels of one specialisation of a shader. It has no state; threads share it.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "../../include/metal_on_cpu/result.h"
#include "../../prelude/msl/abi.h"
#include "../compiler/ir_pass.h"

namespace metal_on_cpu {

struct Segment {
  uintptr_t begin, end;
};

class Image {
 public:
  /// `blocks`: the file of its operations, or empty.
  static Result<std::shared_ptr<const Image>> load(const std::string& path, const std::string& blocks);
  ~Image();
  Image(const Image&) = delete;
  Image& operator=(const Image&) = delete;

  const msl::Kernel* find(const std::string& name) const;
  const std::string& path() const { return path_; }
  const std::vector<Segment>& segments() const { return segments_; }
  const std::vector<OperationCounts>& blocks() const { return blocks_; }

 private:
  Image() = default;
  void* handle_ = nullptr;
  std::string path_;
  std::span<const msl::Kernel> kernels_;
  std::vector<Segment> segments_;
  std::vector<OperationCounts> blocks_;
};

}  // namespace metal_on_cpu
