// Compiles each kernel once for each set of constants, and keeps the machine code on disk
// (MTLBinaryArchive) for later processes. The file may be deleted or damaged at any time; missing
// kernels are then compiled.
#pragma once

#import <Metal/Metal.h>

#include <string>
#include <vector>

#include "backends/metal/metal_device.h"
#include "device/compiled_kernels.h"

namespace metal_marlin::metal {

/// Whether all kernels but those with tensors must compile. Apple 7 (M1) is the first family with
/// simdgroup matrices, as Apple documents it.
inline bool has_matrices(id<MTLDevice> device) {
  return [device supportsFamily:MTLGPUFamilyApple7];
}

class MetalKernel final : public device::Kernel {
 public:
  explicit MetalKernel(id<MTLComputePipelineState> pipeline) : pipeline_(pipeline) {}
  uint32_t max_threads() const override {
    return static_cast<uint32_t>(pipeline_.maxTotalThreadsPerThreadgroup);
  }
  uint32_t simd_width() const override {
    return static_cast<uint32_t>(pipeline_.threadExecutionWidth);
  }
  uint32_t threadgroup_bytes() const override {
    return static_cast<uint32_t>(pipeline_.staticThreadgroupMemoryLength);
  }
  id<MTLComputePipelineState> pipeline() const { return pipeline_; }

 private:
  id<MTLComputePipelineState> pipeline_;
};

/// The file of compiled pipelines. One thread at a time may use it.
class Archive {
 public:
  /// If `folder` is empty, nothing is kept.
  Archive(id<MTLDevice> device, const std::string& folder, const Shaders& shaders, Logger logger);
  ~Archive() { save(); }
  Archive(const Archive&) = delete;
  Archive& operator=(const Archive&) = delete;
  /// Compiles the pipeline into the archive unless it is there, and attaches the archive to
  /// `descriptor`.
  void prepare(MTLComputePipelineDescriptor* descriptor);

 private:
  void save();

  id<MTLDevice> device_;
  Logger logger_;
  id<MTLBinaryArchive> archive_ = nil;
  std::string path_;
  int unsaved_ = 0;
};

/// Any thread may use it. One thread compiles at a time; other threads get compiled kernels
/// meanwhile.
class Pipelines {
 public:
  Pipelines(id<MTLDevice> device, const DeviceOptions& options);
  Result<device::KernelRef> kernel(std::string_view name,
                                   std::span<const device::Constant> constants);
  /// One of the kernels that copy and fill bytes if Metal's own commands cannot.
  Result<device::KernelRef> helper(std::string_view name);

 private:
  /// Kernels of one language: compiled, and sources, which are compiled one by one when needed.
  struct Unit {
    std::span<const std::byte> library;
    std::span<const std::string_view> sources;
    MTLLanguageVersion language;
    std::vector<id<MTLLibrary>> loaded;
    Status refused;  // of tensors: sources that failed to compile once are not tried again
  };
  /// The library of the unit that has the kernel. Loads as many libraries as needed.
  Result<id<MTLLibrary>> library_with(Unit& unit, std::string_view name);
  Result<device::KernelRef> compile(id<MTLLibrary> library, std::string_view name,
                                    std::span<const device::Constant> constants);

  id<MTLDevice> device_;
  // Only the thread that compiles uses the next three members.
  Unit base_, tensor_;
  id<MTLLibrary> helpers_ = nil;
  Archive archive_;
  device::CompiledKernels<std::string> compiled_;  // by name and constants
};

}  // namespace metal_marlin::metal
