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
  /// Whether all of these bytes are of one of its segments.
  bool contains(uintptr_t address, size_t bytes = 1) const {
    for (const Segment& s : segments_) {
      if (address >= s.begin && address + bytes <= s.end) return true;
    }
    return false;
  }
  const std::vector<OperationCounts>& blocks() const { return blocks_; }

 private:
  Image() = default;
  void* handle_ = nullptr;
  std::string path_;
  std::span<const msl::Kernel> kernels_;
  std::vector<Segment> segments_;  // of the file, where they were loaded
  std::vector<OperationCounts> blocks_;
};

}  // namespace metal_on_cpu
