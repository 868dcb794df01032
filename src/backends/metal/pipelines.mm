#include "backends/metal/pipelines.h"

#include "backends/metal/errors.h"

namespace metal_marlin::metal {
namespace {

// Metal's own commands copy and fill whole words, and only between encoders. These kernels do the
// rest, with one thread per byte, because such ranges are short.
constexpr std::string_view kHelpers = R"(#include <metal_stdlib>
using namespace metal;
kernel void marlin_copy_bytes(device const uchar* from [[buffer(0)]],
                              device uchar* to [[buffer(1)]],
                              constant ulong& bytes [[buffer(2)]],
                              uint3 group [[threadgroup_position_in_grid]],
                              uint t [[thread_index_in_threadgroup]],
                              uint3 groups [[threadgroups_per_grid]]) {
  const ulong i = (ulong(group.y) * groups.x + group.x) * 256 + t;
  if (i < bytes) to[i] = from[i];
}
kernel void marlin_fill_bytes(device uchar* to [[buffer(0)]], constant uchar& value [[buffer(1)]],
                              constant ulong& bytes [[buffer(2)]],
                              uint3 group [[threadgroup_position_in_grid]],
                              uint t [[thread_index_in_threadgroup]],
                              uint3 groups [[threadgroups_per_grid]]) {
  const ulong i = (ulong(group.y) * groups.x + group.x) * 256 + t;
  if (i < bytes) to[i] = value;
}
)";

// The first language with bfloat, and the first with tensors, which SDKs before macOS 26 do not
// name.
constexpr MTLLanguageVersion kLanguage = MTLLanguageVersion3_1;
constexpr auto kTensorLanguage = static_cast<MTLLanguageVersion>(4 << 16);

// Fast math may change NaN, infinities and the sign of zero, so it is off.
MTLCompileOptions* compile_options(MTLLanguageVersion language) {
  MTLCompileOptions* options = [[MTLCompileOptions alloc] init];
  options.languageVersion = language;
  if (@available(macOS 15.0, iOS 18.0, *)) {
    options.mathMode = MTLMathModeSafe;
    options.mathFloatingPointFunctions = MTLMathFloatingPointFunctionsPrecise;
  } else {
    options.fastMathEnabled = NO;
  }
  return options;
}

Result<id<MTLLibrary>> compile_source(id<MTLDevice> device, std::string_view source,
                                      MTLLanguageVersion language) {
  NSError* error = nil;
  id<MTLLibrary> library = [device newLibraryWithSource:to_string(source)
                                                options:compile_options(language)
                                                  error:&error];
  if (library == nil) return to_status(error, "compiling the kernels");
  return library;
}

Result<id<MTLLibrary>> load_compiled(id<MTLDevice> device, std::span<const std::byte> bytes) {
  // The memory is borrowed, so the destructor does nothing.
  const dispatch_block_t nothing = ^{
  };
  dispatch_data_t data = dispatch_data_create(bytes.data(), bytes.size(), nil, nothing);
  NSError* error = nil;
  id<MTLLibrary> library = [device newLibraryWithData:data error:&error];
  if (library == nil) return to_status(error, "loading the compiled kernels");
  return library;
}

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

}  // namespace

Pipelines::Pipelines(id<MTLDevice> device, const DeviceOptions& options)
    : device_(device),
      base_{options.shaders.library, options.shaders.sources, kLanguage, {}, {}},
      tensor_{
          options.shaders.tensor_library, options.shaders.tensor_sources, kTensorLanguage, {}, {}},
      archive_(device, options.cache_folder, options.shaders, options.logger) {}

Result<id<MTLLibrary>> Pipelines::library_with(Unit& unit, std::string_view name) {
  NSString* const wanted = to_string(name);
  const size_t compiled = unit.library.empty() ? 0 : 1;
  for (size_t i = 0; i < compiled + unit.sources.size(); ++i) {
    if (i == unit.loaded.size()) {
      MARLIN_RETURN_IF_ERROR(unit.refused);
      auto loaded = i < compiled
                        ? load_compiled(device_, unit.library)
                        : compile_source(device_, unit.sources[i - compiled], unit.language);
      if (!loaded.ok()) {
        if (&unit == &tensor_) unit.refused = loaded.status();
        return loaded.status();
      }
      loaded.value().label = @"metal-marlin";
      unit.loaded.push_back(loaded.value());
    }
    if ([unit.loaded[i].functionNames containsObject:wanted]) return unit.loaded[i];
  }
  return Status::error(MARLIN_E_NOT_FOUND, "there is no kernel %s", wanted.UTF8String);
}

Result<device::KernelRef> Pipelines::kernel(std::string_view name,
                                            std::span<const device::Constant> constants) {
  @autoreleasepool {
    return compiled_.get(key_of(name, constants), [&]() -> Result<device::KernelRef> {
      const bool tensor = name.ends_with("_tensor");
      const auto library = library_with(tensor ? tensor_ : base_, name);
      auto made = library.ok() ? compile(library.value(), name, constants)
                               : Result<device::KernelRef>(library.status());
      // Compilers differ in their support of tensors, and devices of older families in that of the
      // rest. An error here means that this kernel is missing, and not that the device failed.
      if ((tensor || !has_matrices(device_)) && made.status().code() == MARLIN_E_DEVICE)
        return Status::error(MARLIN_E_UNSUPPORTED, "%s", made.status().message());
      return made;
    });
  }
}

Result<device::KernelRef> Pipelines::helper(std::string_view name) {
  @autoreleasepool {
    return compiled_.get(std::string(name), [&]() -> Result<device::KernelRef> {
      if (helpers_ == nil) {
        MARLIN_ASSIGN(helpers_, compile_source(device_, kHelpers, kLanguage));
      }
      return compile(helpers_, name, {});
    });
  }
}

Result<device::KernelRef> Pipelines::compile(id<MTLLibrary> library, std::string_view name,
                                             std::span<const device::Constant> constants) {
  NSString* const function_name = to_string(name);
  const std::string what = "kernel " + std::string(name);
  NSError* error = nil;
  MTLComputePipelineDescriptor* descriptor = [[MTLComputePipelineDescriptor alloc] init];
  descriptor.label = function_name;
  descriptor.computeFunction = [library newFunctionWithName:function_name
                                             constantValues:constant_values(constants)
                                                      error:&error];
  if (descriptor.computeFunction == nil) return to_status(error, what.c_str());
  archive_.prepare(descriptor);
  id<MTLComputePipelineState> pipeline =
      [device_ newComputePipelineStateWithDescriptor:descriptor
                                             options:MTLPipelineOptionNone
                                          reflection:nil
                                               error:&error];
  if (pipeline == nil) return to_status(error, what.c_str());
  return device::KernelRef(std::make_shared<MetalKernel>(pipeline));
}

}  // namespace metal_marlin::metal
