// The least time that a product can take: that of reading its weights.
#pragma once

#include <cstddef>
#include <string>

#include "timing_device.h"

namespace timing {

/// The kernel that only reads (read_floor.cu).
class ReadFloor {
 public:
  ReadFloor(const Device& device, const std::string& path);
  ~ReadFloor() { static_cast<void>(device_.driver().unload_module(module_)); }
  ReadFloor(const ReadFloor&) = delete;
  ReadFloor& operator=(const ReadFloor&) = delete;

  /// On the device's stream.
  void read(DevicePtr from, size_t bytes) const;

 private:
  const Device& device_;
  const Memory result_;
  cuda::ModuleHandle module_ = nullptr;
  cuda::FunctionHandle function_ = nullptr;
};

}  // namespace timing
