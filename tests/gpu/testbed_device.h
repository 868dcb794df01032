// A GPU made of the shader test-bed: the real Metal shaders, run on the CPU, every access checked. What the checker finds is a
// late error of the stream. Commands run when they are committed; those between two barriers in an order of the seed's choice,
// so that a missing barrier shows.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "device/device.h"
#include "metal_on_cpu/metal_on_cpu.h"

namespace device_test {

namespace dv = metal_marlin::device;
using metal_marlin::Result;
using metal_marlin::Status;

struct TestbedOptions {
  bool check = true;           ///< off: only as fast as it can; what does not compile is then a late error
  bool flush_to_zero = false;  ///< float subnormals are zero, as Apple's compiler has it
  metal_on_cpu::Contraction contraction = metal_on_cpu::Contraction::kFloat;
  uint64_t seed = 0;  ///< of the orders of commands, threadgroups and lanes; 0: as recorded
  /// A mistake to plant: replaced before a shader is compiled, in its file or in a header that it includes.
  struct Change {
    std::string file, from, to;
  };
  std::vector<Change> changes;
  /// Columns of C whose threadgroups do not run, a multiple of every tile's: those before the ones that a test looks at.
  int64_t skipped_columns = 0;
  bool tensor = true;     ///< the device has tensor operations
  bool fragments = true;  ///< they hold operands in registers as published
  bool unified = true;    ///< off: the host does not reach the device's memory
  /// Gets the work of every dispatch that ran. All of them are then counted, which takes ten times as long.
  std::function<void(const std::string& kernel, const metal_on_cpu::Counters&)> counted = nullptr;
};

class TestbedDevice final : public dv::Device {
 public:
  explicit TestbedDevice(TestbedOptions options = {});
  const dv::Capabilities& capabilities() const override { return capabilities_; }
  Result<dv::BufferRef> allocate(uint64_t bytes, dv::Placement placement, const char* label) override;
  Result<dv::BufferRef> wrap(void* host, uint64_t bytes, dv::Placement) override;
  /// A native object is a dv::Buffer of this device.
  Result<dv::BufferRef> wrap_native(void* native) override;
  Result<dv::KernelRef> kernel(std::string_view name, std::span<const dv::Constant> constants) override;
  Result<std::unique_ptr<dv::Stream>> stream(const dv::StreamSource& source) override;

  void set_seed(uint64_t seed) { options_.seed = seed; }

 private:
  Result<metal_on_cpu::Library> library(const std::string& name, std::span<const dv::Constant> constants);

  TestbedOptions options_;
  dv::Capabilities capabilities_;
  std::mutex mutex_;
  std::map<std::string, metal_on_cpu::Library> libraries_;  // by kernel
};

}  // namespace device_test
