// Products of the library, and memory of the device for their operands.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "metal_marlin/metal_marlin.hpp"
#include "timing_device.h"
#include "timing_operands.h"

namespace timing {

/// A matrix without gaps at this address of the device.
marlin_matrix device_matrix(DevicePtr at, int64_t rows, int64_t columns, marlin_dtype dtype);

/// Random 16-bit numbers, of which the host has a copy.
struct Numbers {
  Numbers(const Device& device, size_t count, marlin_dtype type);
  Activations view() const { return {dtype, on_host.data()}; }

  const marlin_dtype dtype;
  const std::vector<uint16_t> on_host;
  const Memory memory;
};

/// Random 16-bit numbers, the same block again and again: it takes long to make them, and caches do not see what is in them.
class RepeatedNumbers : public Memory {
 public:
  RepeatedNumbers(const Device& device, size_t bytes, marlin_dtype dtype);
};

/// Products on the device's stream, one after another.
class Products {
 public:
  /// Throws if the library refuses one of them.
  Products(const metal_marlin::context& context, const Device& device, std::vector<marlin_gemm_desc> descs, int64_t m);
  void multiply() const;

 private:
  const std::vector<marlin_gemm_desc> descs_;
  metal_marlin::stream stream_;
};

/// The kernel that only reads (read_floor.cu): the least time that a product can take.
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

/// The name of the kernel of a product.
std::string kernel_of(const marlin_gemm_desc& desc);

}  // namespace timing
