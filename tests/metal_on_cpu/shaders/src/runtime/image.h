// A loaded image: the kernels of one specialization of a shader. It has no state; threads share it.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "../../include/metal_on_cpu/result.h"
#include "../../prelude/msl/abi.h"
#include "../compiler/operations.h"

namespace metal_on_cpu {

struct Segment {
  uintptr_t begin, end;
};

class Image {
 public:
  static Result<std::shared_ptr<const Image>> load(const std::string& path);
  ~Image();
  Image(const Image&) = delete;
  Image& operator=(const Image&) = delete;

  const msl::Kernel* find(const std::string& name) const;
  std::span<const msl::Kernel> kernels() const { return kernels_; }
  const std::string& path() const { return path_; }
  /// Whether all of these bytes are of one of its segments.
  bool contains(uintptr_t address, size_t bytes = 1) const {
    for (const Segment& s : segments_) {
      if (address >= s.begin && address + bytes <= s.end) return true;
    }
    return false;
  }
  /// Operations of each basic block; none in fast mode.
  std::span<const OperationCounts> blocks() const { return blocks_; }

 private:
  Image() = default;
  void* handle_ = nullptr;
  std::string path_;
  std::span<const msl::Kernel> kernels_;
  std::vector<Segment> segments_;  // of the file, where they were loaded
  std::span<const OperationCounts> blocks_;
};

}  // namespace metal_on_cpu
