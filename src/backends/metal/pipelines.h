// Kernels: compiled once a name and set of constants, and kept on disk as machine code
// (MTLBinaryArchive) from one process to the next. The file may be deleted or damaged at any time:
// what it lacks is compiled.
#pragma once

#import <Metal/Metal.h>

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "backends/metal/metal_device.h"

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

/// The file of compiled pipelines. Not safe from several threads.
class Archive {
 public:
  /// `folder` empty: nothing is kept.
  Archive(id<MTLDevice> device, const std::string& folder, const Shaders& shaders, Logger logger);
  ~Archive() { save(); }
  Archive(const Archive&) = delete;
  Archive& operator=(const Archive&) = delete;
  /// Compiles the pipeline into the archive unless it has it, and lets `descriptor` look there.
  void prepare(MTLComputePipelineDescriptor* descriptor);

 private:
  void save();

  id<MTLDevice> device_;
  Logger logger_;
  id<MTLBinaryArchive> archive_ = nil;
  std::string path_;
  int unsaved_ = 0;
};

/// Any thread. One compiles at a time; what is compiled already is had meanwhile.
class Pipelines {
 public:
  Pipelines(id<MTLDevice> device, const DeviceOptions& options);
  Result<device::KernelRef> kernel(std::string_view name,
                                   std::span<const device::Constant> constants);
  /// One of the kernels that copy and fill bytes where Metal's own commands cannot.
  Result<device::KernelRef> helper(std::string_view name);

 private:
  /// Kernels of one language: compiled, or sources of which as many were compiled as were needed so
  /// far.
  struct Unit {
    std::span<const std::byte> library;
    std::span<const std::string_view> sources;
    MTLLanguageVersion language;
    std::vector<id<MTLLibrary>> loaded;
    Status refused;  // of tensors: what did not compile once is not tried for every kernel
  };
  device::KernelRef find(const std::string& key);
  /// What was compiled under this key, or what `make` compiles.
  template <class Make>
  Result<device::KernelRef> once(const std::string& key, const Make& make);
  /// The unit's library that has the kernel, loading as many as it takes.
  Result<id<MTLLibrary>> library_with(Unit& unit, std::string_view name);
  Result<device::KernelRef> compile(id<MTLLibrary> library, std::string_view name,
                                    std::span<const device::Constant> constants);

  id<MTLDevice> device_;
  std::mutex compiling_;  // for as long as that takes; guards the libraries and the archive
  Unit base_, tensor_;
  id<MTLLibrary> helpers_ = nil;
  Archive archive_;
  std::mutex mutex_;  // guards what follows; taken after compiling_, never before
  std::map<std::string, device::KernelRef> compiled_;  // by name and constants
};

}  // namespace metal_marlin::metal
