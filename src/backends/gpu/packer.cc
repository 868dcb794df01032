#include "backends/gpu/packer.h"

#include <cstring>
#include <utility>

#include "backends/gpu/gpu_backend.h"
#include "base/memory.h"

namespace metal_marlin::gpu {
namespace {

class HostBuffer final : public device::Buffer {
 public:
  explicit HostBuffer(Block block) : block_(std::move(block)) {}
  uint64_t bytes() const override { return block_.size(); }
  std::byte* host() const override { return block_.data(); }
  uint64_t address() const override { return reinterpret_cast<uintptr_t>(block_.data()); }

 private:
  const Block block_;
};

/// Memory alone: neither kernels nor queues.
class HostDevice final : public device::Device {
 public:
  explicit HostDevice(const Allocator& allocator) : allocator_(allocator) {
    capabilities_.name = "the packer";
  }
  const device::Capabilities& capabilities() const override { return capabilities_; }
  Result<device::BufferRef> allocate(uint64_t bytes, device::Placement, const char*) override {
    MARLIN_ASSIGN(Block block, Block::allocate(allocator_, bytes, kPartAlign));
    std::memset(block.data(), 0, block.size());  // the gaps between parts come into the file, too
    return device::BufferRef(std::make_shared<HostBuffer>(std::move(block)));
  }
  Result<device::BufferRef> wrap(void*, uint64_t, device::Placement) override { return no_gpu(); }
  Result<device::BufferRef> wrap_native(void*) override { return no_gpu(); }
  Result<device::KernelRef> kernel(std::string_view, std::span<const device::Constant>) override {
    return no_gpu();
  }
  Result<std::unique_ptr<device::Stream>> stream(const device::StreamSource&) override {
    return no_gpu();
  }

 private:
  static Status no_gpu() { return Status::error(MARLIN_E_UNSUPPORTED, "the packer has no GPU"); }
  const Allocator allocator_;
  device::Capabilities capabilities_;
};

}  // namespace

Result<std::unique_ptr<Backend>> make_packer(const BackendOptions& options, const Policy& policy) {
  GpuOptions gpu;
  gpu.policy = &policy;
  return make_gpu_backend(std::make_shared<HostDevice>(options.allocator), options, gpu);
}

}  // namespace metal_marlin::gpu
