// Memory, kernels and what streams leave behind, on a device of NVIDIA's.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "backends/cuda/cuda_device.h"
#include "backends/cuda/driver.h"
#include "shaders/common/cuda_parameters.h"

namespace metal_marlin::cuda {

class CudaBuffer final : public device::Buffer {
 public:
  enum class Origin : uint8_t { device, pinned, registered, hosts };

  CudaBuffer(ContextRef context, Origin origin, DevicePtr address, void* host, uint64_t bytes)
      : context_(std::move(context)),
        origin_(origin),
        address_(address),
        host_(static_cast<std::byte*>(host)),
        bytes_(bytes) {}
  ~CudaBuffer() override;
  CudaBuffer(const CudaBuffer&) = delete;
  CudaBuffer& operator=(const CudaBuffer&) = delete;
  uint64_t bytes() const override { return bytes_; }
  std::byte* host() const override { return host_; }
  uint64_t address() const override { return address_; }
  /// The host's own memory lives as long as the host says, so streams need not keep it.
  bool is_hosts() const { return origin_ == Origin::hosts; }

 private:
  const ContextRef context_;
  const Origin origin_;
  const DevicePtr address_;
  std::byte* const host_;
  const uint64_t bytes_;
};

/// A loaded image.
class Module {
 public:
  Module(ContextRef context, ModuleHandle handle) : context_(std::move(context)), handle_(handle) {}
  ~Module();
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;
  ModuleHandle handle() const { return handle_; }

 private:
  const ContextRef context_;
  const ModuleHandle handle_;
};

/// What the launch of a kernel gives it besides its arguments (kernels.inc).
struct LaunchRules {
  uint32_t shared_bytes = 0;  ///< dynamic
  uint32_t box_rows = 0;      ///< of the tensor map of A, whose boxes have 64 columns; 0: no map
  bool overlaps = false;      ///< starts before the kernel before has ended, and waits itself
};

class CudaKernel final : public device::Kernel {
 public:
  CudaKernel(std::shared_ptr<Module> module, FunctionHandle function, const LaunchRules& rules,
             uint32_t threads, uint32_t bytes, std::span<const device::Constant> constants);
  uint32_t max_threads() const override { return max_threads_; }
  uint32_t simd_width() const override { return 32; }
  uint32_t threadgroup_bytes() const override { return threadgroup_bytes_; }
  FunctionHandle function() const { return function_; }
  const LaunchRules& rules() const { return rules_; }
  const std::array<unsigned char, kCudaConstants>& constants() const { return constants_; }

 private:
  const std::shared_ptr<Module> module_;
  const FunctionHandle function_;
  const LaunchRules rules_;
  const uint32_t max_threads_, threadgroup_bytes_;
  std::array<unsigned char, kCudaConstants> constants_{};
};

/// Buffers that work may still use, until the event that was recorded behind the work.
struct Kept {
  EventHandle event = nullptr;
  std::vector<device::BufferRef> buffers;
};

/// What the streams and kernels of one device share. Any thread may use it.
class Shared {
 public:
  Shared(ContextRef made, const Kernels& kernels) : context(std::move(made)), kernels_(kernels) {}
  ~Shared();
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;

  /// Loads the module of a kernel at its first use.
  Result<device::KernelRef> kernel(std::string_view name,
                                   std::span<const device::Constant> constants);
  /// Takes over the buffers of a stream that is gone, and releases those whose work is done.
  void keep(std::vector<Kept> left);

  const ContextRef context;

 private:
  Result<std::shared_ptr<Module>> module_of(const KernelModule& found);

  const Kernels kernels_;
  std::mutex mutex_;
  std::map<std::string_view, std::shared_ptr<Module>> modules_;
  std::vector<Kept> kept_;
};

Result<std::unique_ptr<device::Stream>> create_stream(std::shared_ptr<Shared> shared,
                                                      const device::StreamSource& source);

}  // namespace metal_marlin::cuda
