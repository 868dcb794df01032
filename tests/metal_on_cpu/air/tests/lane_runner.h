// The smallest runtime that a converted kernel can run on: every lane is a thread of the host. For tests of single functions;
// the test-bed's own runtime runs whole kernels.
#pragma once

#include <metal_on_cpu/result.h>
#include <msl/abi.h>

#include <memory>
#include <string>
#include <vector>

namespace metal_on_cpu::air {

/// An image of one kernel, loaded into this program.
class LaneImage {
 public:
  /// Compiles IR with clang.
  static Result<std::unique_ptr<LaneImage>> build(const std::string& ir);
  ~LaneImage();
  LaneImage(const LaneImage&) = delete;
  LaneImage& operator=(const LaneImage&) = delete;
  const msl::Kernel& kernel() const { return *kernel_; }

  /// Runs `groups` threadgroups in a row, each of `threads` x 1 x 1 lanes. Kernels whose lanes part before a collective are not
  /// for this runtime.
  void run(const std::vector<void*>& buffers, msl::Uint3 groups, uint32_t threads) const;

 private:
  LaneImage() = default;
  void* handle_ = nullptr;
  const msl::Kernel* kernel_ = nullptr;
};

}  // namespace metal_on_cpu::air
