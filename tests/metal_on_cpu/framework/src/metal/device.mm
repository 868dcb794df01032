#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>

#include "dispatch/dispatch_data.h"
#include "dispatch/serial_thread.h"
#include "metal/objects.h"
#include "metal/source_library.h"
#include "runtime/object.h"

using metal_framework::error;
using metal_framework::Fault;
using metal_framework::find;
using metal_framework::string;
using metal_framework::text;

namespace metal_framework {
namespace {

constexpr size_t kBufferAlignment = 256;

std::shared_ptr<Storage> allocate(NSUInteger length, MTLResourceOptions options) {
  void* memory = nullptr;
  if (posix_memalign(&memory, kBufferAlignment, length) != 0) return nullptr;
  std::memset(memory, 0, length);
  auto storage = std::make_shared<Storage>();
  storage->data = static_cast<std::byte*>(memory);
  storage->size = length;
  storage->mode = (MTLStorageMode)(options >> 4 & 15);
  storage->untracked = (options & MTLResourceHazardTrackingModeUntracked) != 0;
  return storage;
}

bool length_allowed(NSUInteger length) {
  if (length == 0 || length > kMaxBufferLength) {
    find("buffer-length",
         "a buffer of " + std::to_string(length) + " bytes; 1 to " + std::to_string(kMaxBufferLength) + " may be");
    return false;
  }
  return !fails(Fault::allocation);
}

MOCBuffer* wrap(std::shared_ptr<Storage> storage, MTLResourceOptions options) {
  if (storage == nullptr) return nil;
  MOCBuffer* buffer = [[MOCBuffer alloc] init];
  buffer->storage = std::move(storage);
  buffer->options = options;
  return buffer;
}

bool whole_pages(const void* bytes, NSUInteger length) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return bytes != nullptr && reinterpret_cast<size_t>(bytes) % page == 0 && length % page == 0;
}

Engine& engine() {
  static Engine* const the_engine = make_engine().release();
  return *the_engine;
}

}  // namespace

double seconds_now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

}  // namespace metal_framework

@implementation MTLArchitecture
- (NSString*)name {
  return metal_framework::string("applegpu_simulated" + std::to_string(metal_test::settings()->apple_family));
}
@end

@interface MOCDevice : NSObject <MTLDevice>
@end

@implementation MOCDevice

// --- what it is -------------------------------------------------------------------------------------------------------------

- (NSString*)name {
  return string(metal_framework::engine().name());
}
- (uint64_t)registryID {
  return 1;
}
- (MTLArchitecture*)architecture {
  return [[MTLArchitecture alloc] init];
}
- (MTLSize)maxThreadsPerThreadgroup {
  return MTLSizeMake(1024, 1024, 1024);
}
- (NSUInteger)maxThreadgroupMemoryLength {
  return metal_framework::kMaxThreadgroupMemory;
}
- (NSUInteger)maxBufferLength {
  return metal_framework::kMaxBufferLength;
}
- (uint64_t)recommendedMaxWorkingSetSize {
  return [NSProcessInfo processInfo].physicalMemory / 4 * metal_test::settings()->working_set_quarters;
}
- (BOOL)hasUnifiedMemory {
  return YES;
}
// A family of Apple's and what it includes.
- (BOOL)supportsFamily:(MTLGPUFamily)family {
  return (family >= MTLGPUFamilyApple1 && family < MTLGPUFamilyApple1 + metal_test::settings()->apple_family) ||
         (family == MTLGPUFamilyMetal4 && metal_test::settings()->apple_family >= 7);
}
// As Apple's GPUs, which sample between passes only.

// --- queues and buffers -----------------------------------------------------------------------------------------------------

- (id<MTLCommandQueue>)newCommandQueue {
  return metal_framework::fails(Fault::queue) ? nil : [[MOCCommandQueue alloc] init];
}
- (id<MTLBuffer>)newBufferWithLength:(NSUInteger)length options:(MTLResourceOptions)options {
  if (!metal_framework::length_allowed(length)) return nil;
  return metal_framework::wrap(metal_framework::allocate(length, options), options);
}
- (id<MTLBuffer>)newBufferWithBytesNoCopy:(void*)bytes
                                   length:(NSUInteger)length
                                  options:(MTLResourceOptions)options
                              deallocator:(void (^)(void*, NSUInteger))deallocator {
  const auto mode = (MTLStorageMode)(options >> 4 & 15);
  if (!metal_framework::whole_pages(bytes, length)) {
    find("no-copy-alignment", "newBufferWithBytesNoCopy: of " + std::to_string(length) + " bytes, not whole pages");
    return nil;
  }
  if (mode == MTLStorageModePrivate) {
    find("wrong-storage", "newBufferWithBytesNoCopy: with private storage");
    return nil;
  }
  if (!metal_framework::length_allowed(length)) return nil;
  auto storage = std::make_shared<metal_framework::Storage>();
  storage->data = static_cast<std::byte*>(bytes);
  storage->size = length;
  storage->mode = mode;
  storage->borrowed = true;
  return metal_framework::wrap(std::move(storage), options);
}

// --- libraries --------------------------------------------------------------------------------------------------------------

- (id<MTLLibrary>)newLibraryWithSource:(NSString*)source
                               options:(MTLCompileOptions*)options
                                 error:(NSError* __autoreleasing*)out {
  const auto refuse = [&](MTLLibraryError code, const std::string& why) {
    metal_framework::set(out, error(MTLLibraryErrorDomain, static_cast<NSInteger>(code), why));
    return (id<MTLLibrary>)nil;
  };
  ++metal_test::settings()->compiled;
  if (metal_framework::fails(Fault::compile)) return refuse(MTLLibraryErrorInternal, "compiler failed (planted)");
  const auto version = static_cast<int>((options == nil ? MTLLanguageVersion3_2 : options.languageVersion) >> 16);
  const bool safe = metal_test::settings()->requires_safe_math;
  if (safe && (options == nil || options.mathMode != MTLMathModeSafe)) {
    find("fast-math", "a library is compiled with fast math, which need not keep NaN, infinities and the sign of 0");
  } else if (safe && options.mathFloatingPointFunctions != MTLMathFloatingPointFunctionsPrecise) {
    find("fast-math", "a library is compiled with fast functions, which are less exact than the language says");
  }
  std::string why;
  auto library = metal_framework::engine().compile(text(source), version, why);
  if (library == nullptr) return refuse(MTLLibraryErrorCompileFailure, why);
  MOCLibrary* made = [[MOCLibrary alloc] init];
  made->library = std::move(library);
  made->identity = text(source) + "\n" + std::to_string(version);
  return made;
}
// Each on a thread of its own: Metal compiles several at once.
- (void)newLibraryWithSource:(NSString*)source
                     options:(MTLCompileOptions*)options
           completionHandler:(MTLNewLibraryCompletionHandler)completionHandler {
  const auto thread = std::make_shared<metal_framework::SerialThread>();
  MTLNewLibraryCompletionHandler handler = completionHandler;
  thread->run([=] {
    @autoreleasepool {
      const metal_framework::Compiling compiling;
      NSError* error = nil;
      id<MTLLibrary> made = [self newLibraryWithSource:source options:options error:&error];
      handler(made, error);
    }
    (void)thread;  // ends with its work
  });
}
- (id<MTLLibrary>)newLibraryWithData:(dispatch_data_t)data error:(NSError* __autoreleasing*)out {
  MOCDispatchData* given = (MOCDispatchData*)data;
  const auto source = metal_framework::unwrap_source({static_cast<const char*>(given->bytes), given->size});
  if (!source) {
    metal_framework::set(out, error(MTLLibraryErrorDomain, MTLLibraryErrorUnsupported, "invalid library data"));
    return nil;
  }
  MTLCompileOptions* options = [[MTLCompileOptions alloc] init];
  options.mathMode = MTLMathModeSafe;
  options.mathFloatingPointFunctions = MTLMathFloatingPointFunctionsPrecise;
  return [self newLibraryWithSource:string(*source) options:options error:out];
}

// --- pipelines --------------------------------------------------------------------------------------------------------------

- (id<MTLComputePipelineState>)newComputePipelineStateWithDescriptor:(MTLComputePipelineDescriptor*)descriptor
                                                             options:(MTLPipelineOption)options
                                                          reflection:(MTLComputePipelineReflection* __autoreleasing*)reflection
                                                               error:(NSError* __autoreleasing*)out {
  const auto refuse = [&](const std::string& why) {
    metal_framework::set(out, error(MTLLibraryErrorDomain, MTLLibraryErrorInternal, why));
    return (id<MTLComputePipelineState>)nil;
  };
  MOCFunction* function = (MOCFunction*)descriptor.computeFunction;
  if (function == nil) {
    find("nil-argument", "a compute pipeline without function");
    return refuse("the compute function is nil");
  }
  metal_framework::call_in_pipeline();
  if (metal_framework::fails(Fault::pipeline)) return refuse("the pipeline could not be made (planted)");
  bool archived = false;
  for (id<MTLBinaryArchive> archive in descriptor.binaryArchives) {
    archived = archived || [(MOCBinaryArchive*)archive contains:function];
  }
  if ((options & MTLPipelineOptionFailOnBinaryArchiveMiss) != 0 && !archived)
    return refuse("no binary archive has the pipeline");
  MOCComputePipelineState* made = [[MOCComputePipelineState alloc] init];
  made->function = function;
  made->presence = std::make_shared<metal_framework::Presence>();
  made->presence->name = "the pipeline of kernel " + function->name;
  return made;
}

// --- the rest ---------------------------------------------------------------------------------------------------------------

- (id<MTLFence>)newFence {
  return metal_framework::fails(Fault::event) ? nil : [[MOCFence alloc] init];
}
- (id<MTLResidencySet>)newResidencySetWithDescriptor:(MTLResidencySetDescriptor*)descriptor
                                               error:(NSError* __autoreleasing*)out {
  if (metal_test::settings()->apple_family < 6)
    find("residency-unsupported", "newResidencySetWithDescriptor: on a device of a family before Apple 6");
  if (!metal_framework::fails(Fault::residency_set)) return [[MOCResidencySet alloc] initWithLabel:descriptor.label];
  metal_framework::set(out, error(@"NSPOSIXErrorDomain", ENOMEM, "no residency set could be made (planted)"));
  return nil;
}
- (id<MTLBinaryArchive>)newBinaryArchiveWithDescriptor:(MTLBinaryArchiveDescriptor*)descriptor
                                                 error:(NSError* __autoreleasing*)out {
  if (metal_framework::fails(Fault::archive)) {
    metal_framework::set(out, error(MTLBinaryArchiveDomain, MTLBinaryArchiveErrorInternalError, "planted"));
    return nil;
  }
  MOCBinaryArchive* archive = [[MOCBinaryArchive alloc] init];
  if (descriptor.url != nil && ![archive load:descriptor.url error:out]) return nil;
  return archive;
}
@end

namespace metal_framework {

// Never released: as on a Mac, the device outlives whoever asks for it.
id<MTLDevice> device() {
  static MOCDevice* the_device;
  static std::once_flag once;
  std::call_once(once, [] {
    the_device = [[MOCDevice alloc] init];
    make_immortal(the_device);
  });
  return the_device;
}

}  // namespace metal_framework

id<MTLDevice> MTLCreateSystemDefaultDevice(void) { return metal_test::settings()->removed ? nil : metal_framework::device(); }
NSArray<id<MTLDevice>>* MTLCopyAllDevices(void) {
  return metal_test::settings()->removed || !metal_test::settings()->lists_devices ? @[] : @[ metal_framework::device() ];
}
