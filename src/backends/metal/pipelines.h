// Compiles each kernel once for each set of constants, and keeps the machine code on disk
// (MTLBinaryArchive) for later processes. The file may be deleted or damaged at any time; missing
// kernels are then compiled.
#pragma once

#import <Metal/Metal.h>

#include <string>

#include "backends/metal/libraries.h"
#include "backends/metal/metal_device.h"
#include "device/compiled_kernels.h"

namespace metal_marlin::metal {

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
  Archive(id<MTLDevice> device, const std::string& folder, Shaders shaders, Logger logger);
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
  /// Begins to compile what the kernel is made of, if that takes long, and returns at once.
  void expect(std::string_view name, std::span<const device::Constant> constants);

 private:
  Result<device::KernelRef> compile(id<MTLLibrary> library, std::string_view name,
                                    std::span<const device::Constant> constants);

  id<MTLDevice> device_;
  Libraries libraries_;
  Archive archive_;                                // which only the thread that compiles uses
  device::CompiledKernels<std::string> compiled_;  // by name and constants
};

}  // namespace metal_marlin::metal
