// The libraries of Metal that have the kernels. A kernel's name tells its file, so that nothing
// else is compiled for it, and what a compiler refuses is one kernel.
#pragma once

#import <Metal/Metal.h>

#include <future>
#include <map>
#include <mutex>
#include <string>

#include "backends/metal/metal_device.h"

namespace metal_marlin::metal {

/// Any thread may use it.
class Libraries {
 public:
  Libraries(id<MTLDevice> device, Shaders shaders, Logger logger)
      : device_(device), shaders_(shaders), logger_(logger) {}
  /// Begins to compile the text that has the kernel, unless the file came compiled, and returns at
  /// once. Metal compiles several texts at the same time.
  void expect(std::string_view kernel, std::span<const device::Constant> constants);
  /// The library that has the kernel. MARLIN_E_UNSUPPORTED with the compiler's words if it refuses
  /// the kernel, which it is not asked for again.
  Result<id<MTLLibrary>> with(std::string_view kernel, std::span<const device::Constant> constants);

 private:
  using Text = std::shared_future<Result<id<MTLLibrary>>>;
  const ShaderFile* file_of(std::string_view kernel) const;
  /// The library that the file came compiled as, if it has the kernel, else nil.
  id<MTLLibrary> built(const ShaderFile& file, std::string_view kernel);
  Text start(const ShaderFile& file, const std::string& macros);

  id<MTLDevice> device_;
  const Shaders shaders_;
  const Logger logger_;
  std::mutex mutex_;                                   // guards the members below
  std::map<const ShaderFile*, id<MTLLibrary>> built_;  // nil: it does not load
  std::map<std::string, Text> texts_;                  // by family and macros
};

}  // namespace metal_marlin::metal
