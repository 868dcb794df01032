#include "backends/metal/pipelines.h"

#include "backends/metal/errors.h"

namespace metal_marlin::metal {
namespace {

MTLFunctionConstantValues* constant_values(std::span<const device::Constant> constants) {
  MTLFunctionConstantValues* values = [[MTLFunctionConstantValues alloc] init];
  for (const device::Constant& constant : constants) {
    const bool truth = constant.bits != 0;
    switch (constant.type) {
      case device::Constant::Type::boolean:
        [values setConstantValue:&truth type:MTLDataTypeBool atIndex:constant.index];
        break;
      case device::Constant::Type::uint32:
        [values setConstantValue:&constant.bits type:MTLDataTypeUInt atIndex:constant.index];
        break;
    }
  }
  return values;
}

std::string key_of(std::string_view name, std::span<const device::Constant> constants) {
  std::string key(name);
  for (const device::Constant& c : constants) {
    key += " " + std::to_string(c.index) + ":" + std::to_string(static_cast<int>(c.type)) + ":" +
           std::to_string(c.bits);
  }
  return key;
}

Status refused(NSError* error, std::string_view name) {
  return unsupported(to_status(error, ("kernel " + std::string(name)).c_str()));
}

}  // namespace

Pipelines::Pipelines(id<MTLDevice> device, const DeviceOptions& options)
    : device_(device),
      libraries_(device, options.shaders, options.logger),
      archive_(device, options.cache_folder, options.shaders, options.logger) {}

void Pipelines::expect(std::string_view name, std::span<const device::Constant> constants) {
  @autoreleasepool {
    libraries_.expect(name, constants);
  }
}

Result<device::KernelRef> Pipelines::kernel(std::string_view name,
                                            std::span<const device::Constant> constants) {
  @autoreleasepool {
    return compiled_.get(key_of(name, constants), [&]() -> Result<device::KernelRef> {
      MARLIN_ASSIGN(id<MTLLibrary> library, libraries_.with(name, constants));
      return compile(library, name, constants);
    });
  }
}

// An error here means that this kernel is missing, and not that the device failed: another kernel
// serves.
Result<device::KernelRef> Pipelines::compile(id<MTLLibrary> library, std::string_view name,
                                             std::span<const device::Constant> constants) {
  NSString* const function_name = to_string(name);
  NSError* error = nil;
  MTLComputePipelineDescriptor* descriptor = [[MTLComputePipelineDescriptor alloc] init];
  descriptor.label = function_name;
  descriptor.computeFunction = [library newFunctionWithName:function_name
                                             constantValues:constant_values(constants)
                                                      error:&error];
  if (descriptor.computeFunction == nil) return refused(error, name);
  archive_.prepare(descriptor);
  id<MTLComputePipelineState> pipeline =
      [device_ newComputePipelineStateWithDescriptor:descriptor
                                             options:MTLPipelineOptionNone
                                          reflection:nil
                                               error:&error];
  if (pipeline == nil) return refused(error, name);
  return device::KernelRef(std::make_shared<MetalKernel>(pipeline));
}

}  // namespace metal_marlin::metal
