#include "backends/gpu/memory.h"

#include <cinttypes>

namespace metal_marlin::gpu {
namespace {

/// Subtracts bytes from the account on destruction, unless it was told to keep them.
class Charge {
 public:
  Charge(std::shared_ptr<std::atomic<uint64_t>> account, uint64_t bytes)
      : account_(std::move(account)), bytes_(bytes) {}
  Charge(Charge&& other) noexcept : account_(std::move(other.account_)), bytes_(other.bytes_) {}
  ~Charge() {
    if (account_ != nullptr) account_->fetch_sub(bytes_, std::memory_order_relaxed);
  }

 private:
  std::shared_ptr<std::atomic<uint64_t>> account_;
  uint64_t bytes_;
};

struct Charged {
  Charge charge;                      // first: released after the memory
  std::shared_ptr<const void> owner;  // of memory that the buffer wraps
  device::BufferRef buffer;
};

}  // namespace

Memory::Memory(device::Device& device, std::function<bool()> release, Logger logger)
    : device_(device),
      release_(std::move(release)),
      logger_(logger),
      used_(std::make_shared<std::atomic<uint64_t>>(0)) {}

Result<device::BufferRef> Memory::allocate(uint64_t bytes, device::Placement placement,
                                           const char* label) {
  return allocate(bytes, placement, label, nullptr, nullptr);
}

Result<DevicePointer> Memory::wrap(std::span<const std::byte> bytes,
                                   const std::shared_ptr<const void>& owner) {
  const uint64_t page = device_.capabilities().page_bytes;
  const uint64_t skip = reinterpret_cast<uintptr_t>(bytes.data()) % page;
  const uint64_t whole = (skip + bytes.size() + page - 1) / page * page;
  std::byte* const host = const_cast<std::byte*>(bytes.data()) - skip;  // kernels only read weights
  MARLIN_ASSIGN(device::BufferRef buffer,
                allocate(whole, device::Placement::device, "mapped weights", host, owner));
  return DevicePointer{std::move(buffer), skip};
}

Result<device::BufferRef> Memory::allocate(uint64_t bytes, device::Placement placement,
                                           const char* label, void* host,
                                           const std::shared_ptr<const void>& owner) {
  auto made = try_allocate(bytes, placement, label, host, owner);
  if (made.status().code() != MARLIN_E_MEMORY || !release_ || !release_()) return made;
  return try_allocate(bytes, placement, label, host, owner);
}

Result<device::BufferRef> Memory::try_allocate(uint64_t bytes, device::Placement placement,
                                               const char* label, void* host,
                                               std::shared_ptr<const void> owner) {
  const device::Capabilities& device = device_.capabilities();
  if (device.max_buffer_bytes != 0 && bytes > device.max_buffer_bytes)
    return Status::error(MARLIN_E_MEMORY,
                         "%s: %" PRIu64 " bytes, a buffer of this device holds at most %" PRIu64,
                         label, bytes, device.max_buffer_bytes);
  const uint64_t before = used_->fetch_add(bytes, std::memory_order_relaxed);
  Charge charge(used_, bytes);
  if (device.most_bytes != 0 && (bytes > device.most_bytes || before > device.most_bytes - bytes))
    return Status::error(MARLIN_E_MEMORY,
                         "%s: %" PRIu64 " bytes, and %" PRIu64 " are in use of the %" PRIu64
                         " that the device may have",
                         label, bytes, before, device.most_bytes);
  MARLIN_ASSIGN(device::BufferRef buffer, host != nullptr
                                              ? device_.wrap(host, bytes, placement)
                                              : device_.allocate(bytes, placement, label));
  if (device.working_set_bytes != 0 && before + bytes > device.working_set_bytes)
    warn(before + bytes);
  auto charged = std::make_shared<Charged>(std::move(charge), std::move(owner), std::move(buffer));
  device::Buffer* const inner = charged->buffer.get();
  return device::BufferRef(std::move(charged), inner);
}

void Memory::warn(uint64_t used) {
  if (warned_.exchange(true)) return;
  const device::Capabilities& device = device_.capabilities();
  logger_(LogLevel::warning,
          Status::error(MARLIN_E_MEMORY,
                        "%s: %" PRIu64 " bytes are in use, more than its working set of %" PRIu64
                        ": the system may page, and work becomes slow",
                        device.name.c_str(), used, device.working_set_bytes)
              .message());
}

}  // namespace metal_marlin::gpu
