#include "backends/cuda/cuda_device.h"

#include <iterator>
#include <string>
#include <utility>

#include "backends/cuda/objects.h"

namespace metal_marlin::cuda {
namespace {

constexpr int kLeastMajor = 8;   // bfloat16 in matrix operations
constexpr int kHopperMajor = 9;  // has wgmma, and no later one does
constexpr uint64_t kHostPage = 4096;

Status no_device(const char* message) { return Status::error(MARLIN_E_NO_DEVICE, "%s", message); }

/// A driver that can run the kernels, and a device of it.
struct Found {
  Driver driver;
  DriverDevice device = 0;
  device::Capabilities capabilities;
};

/// The device of the host's context, or the one with this number.
Status find_device(const DeviceOptions& options, const Driver& driver, DriverDevice& device) {
  if (options.native != nullptr) {
    const auto context = Context::of_host(driver, static_cast<ContextHandle>(options.native));
    const Current current(*context);
    MARLIN_RETURN_IF_ERROR(current.status());
    return driver.check(driver.context_device(&device), "cuCtxGetDevice");
  }
  int count = 0;
  MARLIN_RETURN_IF_ERROR(driver.check(driver.device_count(&count), "cuDeviceGetCount"));
  if (count <= 0 || options.index >= static_cast<uint32_t>(count))
    return Status::error(MARLIN_E_NO_DEVICE, "there is no device %u, the driver lists %d",
                         options.index, count);
  return driver.check(driver.device_get(&device, static_cast<int>(options.index)), "cuDeviceGet");
}

Status check_version(const Driver& driver, int wanted) {
  int version = 0;
  if (const Status s = driver.check(driver.driver_version(&version), "cuDriverGetVersion"); !s.ok())
    return no_device(s.message());
  if (version >= wanted) return {};
  return Status::error(MARLIN_E_NO_DEVICE,
                       "the driver is of CUDA %d.%d, the kernels need %d.%d or newer",
                       version / 1000, version % 1000 / 10, wanted / 1000, wanted % 1000 / 10);
}

Status read_capabilities(Found& found) {
  const Driver& driver = found.driver;
  char name[256] = {};
  size_t memory = 0;
  int major = 0, minor = 0, multiprocessors = 0;
  MARLIN_RETURN_IF_ERROR(
      driver.check(driver.device_name(name, sizeof name - 1, found.device), "cuDeviceGetName"));
  MARLIN_RETURN_IF_ERROR(
      driver.check(driver.device_memory(&memory, found.device), "cuDeviceTotalMem"));
  for (const auto& [attribute, to] : {std::pair(kComputeMajor, &major),
                                      {kComputeMinor, &minor},
                                      {kMultiprocessors, &multiprocessors}})
    MARLIN_RETURN_IF_ERROR(
        driver.check(driver.device_attribute(to, attribute, found.device), "cuDeviceGetAttribute"));
  device::Capabilities& c = found.capabilities;
  c.name = name;
  c.architecture = "sm_" + std::to_string(10 * major + minor);
  c.memory_bytes = memory;
  c.threadgroup_bytes = 48 << 10;
  c.page_bytes = kHostPage;
  c.unified_memory = false;
  c.matrix = c.bfloat = true;
  c.tensor = major == kHopperMajor;
  c.multiprocessors = static_cast<uint32_t>(multiprocessors);
  if (major >= kLeastMajor) return {};
  return Status::error(MARLIN_E_NO_DEVICE,
                       "%s has compute capability %d.%d, the kernels need %d.0 or newer", name,
                       major, minor, kLeastMajor);
}

Result<Found> find(const DeviceOptions& options) {
  if (options.kernels.modules.empty())
    return no_device("not built into this library: no CUDA compiler was found when it was built");
  Found found;
  MARLIN_ASSIGN(found.driver, load_driver(options.driver));
  MARLIN_RETURN_IF_ERROR(check_version(found.driver, options.kernels.cuda_version));
  if (const Status s = find_device(options, found.driver, found.device); !s.ok())
    return no_device(s.message());
  if (const Status s = read_capabilities(found); !s.ok()) return no_device(s.message());
  return found;
}

/// What the driver knows of an address.
struct Range {
  unsigned type = 0;  ///< of memory; 0: there is none
  DevicePtr begin = 0;
  size_t bytes = 0;      ///< 0: the driver does not tell
  int allocated = 0;     ///< by cuMemAlloc
  void* pool = nullptr;  ///< of cuMemAllocAsync
};

/// The driver allows this while a stream is being captured.
Result<Range> range_at(const Driver& driver, DevicePtr address) {
  Range range;
  int attributes[] = {kMemoryType, kRangeBegin, kRangeBytes, kMadeByAllocate, kPool};
  void* values[] = {&range.type, &range.begin, &range.bytes, &range.allocated,
                    static_cast<void*>(&range.pool)};
  const DriverError error =
      driver.pointer_attributes(std::size(attributes), attributes, values, address);
  // The driver cannot tell, which does not mean that there is no memory.
  if (error == kInvalidValue || error == kNotSupported) return Range{.type = 1};
  MARLIN_RETURN_IF_ERROR(driver.check(error, "cuPointerGetAttributes"));
  return range;
}

/// As device::Device::wrap_native() has it.
Result<uint64_t> bytes_from(const Driver& driver, DevicePtr address) {
  MARLIN_ASSIGN(const Range range, range_at(driver, address));
  if (range.type == 0) return uint64_t{0};
  if (range.bytes == 0) return UINT64_MAX;
  const DevicePtr end = range.begin + range.bytes;
  // What lies right behind an allocation is another. But a host may use pieces of an address space
  // that it reserved (cuMemAddressReserve) or pinned (cuMemHostRegister) one after another as one.
  if (range.allocated == 0 && range.pool == nullptr) {
    MARLIN_ASSIGN(const Range next, range_at(driver, end));
    if (next.type != 0) return UINT64_MAX;
  }
  return uint64_t{end - address};
}

class CudaDevice final : public device::Device {
 public:
  CudaDevice(device::Capabilities capabilities, std::shared_ptr<Shared> shared)
      : capabilities_(std::move(capabilities)), shared_(std::move(shared)) {}

  const device::Capabilities& capabilities() const override { return capabilities_; }

  Result<device::BufferRef> allocate(uint64_t bytes, device::Placement placement,
                                     const char* label) override {
    const Current current(context());
    MARLIN_RETURN_IF_ERROR(current.status());
    DevicePtr address = 0;
    if (placement == device::Placement::device) {
      MARLIN_RETURN_IF_ERROR(driver().check(driver().allocate(&address, bytes), label));
      return make(CudaBuffer::Origin::device, address, nullptr, bytes);
    }
    void* host = nullptr;
    MARLIN_RETURN_IF_ERROR(
        driver().check(driver().allocate_pinned(&host, bytes, kPortableAndMapped), label));
    const Status mapped = driver().check(driver().pinned_address(&address, host, 0), label);
    if (mapped.ok()) return make(CudaBuffer::Origin::pinned, address, host, bytes);
    static_cast<void>(driver().free_pinned(host));
    return mapped;
  }

  Result<device::BufferRef> wrap(void* host, uint64_t bytes, device::Placement) override {
    const Current current(context());
    MARLIN_RETURN_IF_ERROR(current.status());
    DevicePtr address = 0;
    MARLIN_RETURN_IF_ERROR(
        driver().check(driver().pin(host, bytes, kPortableAndMapped), "cuMemHostRegister"));
    const Status mapped =
        driver().check(driver().pinned_address(&address, host, 0), "cuMemHostGetDevicePointer");
    if (mapped.ok()) return make(CudaBuffer::Origin::registered, address, host, bytes);
    static_cast<void>(driver().unpin(host));
    return mapped;
  }

  /// Device, pinned and managed memory.
  Result<device::BufferRef> wrap_native(void* native) override {
    const Current current(context());
    MARLIN_RETURN_IF_ERROR(current.status());
    const DevicePtr address = reinterpret_cast<uintptr_t>(native);
    MARLIN_ASSIGN(const uint64_t bytes, bytes_from(driver(), address));
    return make(CudaBuffer::Origin::hosts, address, nullptr, bytes);
  }

  Result<device::KernelRef> kernel(std::string_view name,
                                   std::span<const device::Constant> constants) override {
    return shared_->kernel(name, constants);
  }

  Result<std::unique_ptr<device::Stream>> stream(const device::StreamSource& source) override {
    return create_stream(shared_, source);
  }

 private:
  const Context& context() const { return *shared_->context; }
  const Driver& driver() const { return context().driver(); }
  device::BufferRef make(CudaBuffer::Origin origin, DevicePtr address, void* host,
                         uint64_t bytes) const {
    return std::make_shared<CudaBuffer>(shared_->context, origin, address, host, bytes);
  }

  const device::Capabilities capabilities_;
  const std::shared_ptr<Shared> shared_;
};

}  // namespace

uint32_t count_devices(const DeviceOptions& options) {
  const auto driver = load_driver(options.driver);
  int count = 0;
  if (!driver.ok() || driver.value().device_count(&count) != kSuccess) return 0;
  return static_cast<uint32_t>(count < 0 ? 0 : count);
}

Result<device::Capabilities> describe(const DeviceOptions& options) {
  MARLIN_ASSIGN(const Found found, find(options));
  return found.capabilities;
}

Result<std::unique_ptr<device::Device>> create_device(const DeviceOptions& options) {
  MARLIN_ASSIGN(Found found, find(options));
  ContextRef context;
  if (options.native != nullptr) {
    context = Context::of_host(found.driver, static_cast<ContextHandle>(options.native));
  } else {
    MARLIN_ASSIGN(context, Context::retain(found.driver, found.device));
  }
  auto shared = std::make_shared<Shared>(std::move(context), options.kernels);
  return std::unique_ptr<device::Device>(
      std::make_unique<CudaDevice>(std::move(found.capabilities), std::move(shared)));
}

}  // namespace metal_marlin::cuda
