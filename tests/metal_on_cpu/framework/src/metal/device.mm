#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>

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

// Storage that exists: what currentAllocatedSize says.
std::atomic<size_t> allocated_bytes{0};

std::shared_ptr<Storage> track(Storage* storage) {
  allocated_bytes += storage->size;
  return std::shared_ptr<Storage>(storage, [](Storage* s) {
    allocated_bytes -= s->size;
    delete s;
  });
}

constexpr size_t kBufferAlignment = 256;

std::shared_ptr<Storage> allocate(NSUInteger length, MTLResourceOptions options) {
  void* memory = nullptr;
  if (posix_memalign(&memory, kBufferAlignment, length) != 0) return nullptr;
  std::memset(memory, 0, length);
  auto* storage = new Storage;
  storage->data = static_cast<std::byte*>(memory);
  storage->size = length;
  storage->mode = (MTLStorageMode)(options >> 4 & 15);
  return track(storage);
}

bool length_allowed(NSUInteger length) {
  if (length == 0 || length > kMaxBufferLength) {
    find("buffer-length",
         "a buffer of " + std::to_string(length) + " bytes; 1 to " + std::to_string(kMaxBufferLength) + " may be");
    return false;
  }
  return !fails(Fault::kAllocation);
}

MOCBuffer* wrap(std::shared_ptr<Storage> storage, MTLResourceOptions options) {
  if (storage == nullptr) return nil;
  MOCBuffer* buffer = [[MOCBuffer alloc] init];
  buffer->storage = std::move(storage);
  buffer->options = options;
  return buffer;
}

bool set(NSError* __autoreleasing* out, NSError* made) {
  if (out) *out = made;
  return false;
}

bool whole_pages(const void* bytes, NSUInteger length) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return bytes != nullptr && reinterpret_cast<size_t>(bytes) % page == 0 && length % page == 0;
}

}  // namespace

double seconds_now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }
uint64_t nanoseconds_now() {
  return static_cast<uint64_t>(std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count());
}

Engine& engine() {
  static Engine* const the_engine = make_engine().release();
  return *the_engine;
}

}  // namespace metal_framework

@implementation MTLArchitecture
- (NSString*)name {
  return metal_framework::string("applegpu_simulated" + std::to_string(metal_framework::apple_family()));
}
@end

@interface MOCCounterSet : NSObject <MTLCounterSet, MTLCounter>
@end

// The set and its only counter.
@implementation MOCCounterSet {
 @public
  NSString* named;
}
- (NSString*)name {
  return named;
}
- (NSArray*)counters {
  MOCCounterSet* counter = [[MOCCounterSet alloc] init];
  counter->named = MTLCommonCounterTimestamp;
  return @[ counter ];
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
- (NSUInteger)currentAllocatedSize {
  return metal_framework::allocated_bytes;
}
- (uint64_t)recommendedMaxWorkingSetSize {
  const uint64_t set = metal_framework::working_set();
  return set != 0 ? set : [NSProcessInfo processInfo].physicalMemory / 4 * 3;
}
- (BOOL)hasUnifiedMemory {
  return YES;
}
- (BOOL)isLowPower {
  return NO;
}
- (BOOL)isHeadless {
  return YES;
}
- (BOOL)isRemovable {
  return NO;
}
- (MTLDeviceLocation)location {
  return MTLDeviceLocationBuiltIn;
}
- (MTLArgumentBuffersTier)argumentBuffersSupport {
  return MTLArgumentBuffersTier2;
}
// A family of Apple's and what it includes.
- (BOOL)supportsFamily:(MTLGPUFamily)family {
  return (family >= MTLGPUFamilyApple1 && family < MTLGPUFamilyApple1 + metal_framework::apple_family()) ||
         family == MTLGPUFamilyMac2 || (family >= MTLGPUFamilyCommon1 && family <= MTLGPUFamilyCommon3) ||
         family == MTLGPUFamilyMetal3 || (family == MTLGPUFamilyMetal4 && metal_framework::apple_family() >= 7);
}
- (NSArray*)counterSets {
  MOCCounterSet* set = [[MOCCounterSet alloc] init];
  set->named = MTLCommonCounterSetTimestamp;
  return @[ set ];
}
// As Apple's GPUs, which sample between passes only.
- (BOOL)supportsCounterSampling:(MTLCounterSamplingPoint)point {
  return point == MTLCounterSamplingPointAtStageBoundary;
}
- (void)sampleTimestamps:(MTLTimestamp*)cpu gpuTimestamp:(MTLTimestamp*)gpu {
  *cpu = *gpu = metal_framework::nanoseconds_now();
}

// --- queues and buffers -----------------------------------------------------------------------------------------------------

- (id<MTLCommandQueue>)newCommandQueue {
  return [self newCommandQueueWithMaxCommandBufferCount:64];
}
- (id<MTLCommandQueue>)newCommandQueueWithMaxCommandBufferCount:(NSUInteger)count {
  if (count == 0) find("nil-argument", "a queue for 0 command buffers");
  if (count == 0 || metal_framework::fails(Fault::kQueue)) return nil;
  return [[MOCCommandQueue alloc] initWithCount:count];
}
- (id<MTLBuffer>)newBufferWithLength:(NSUInteger)length options:(MTLResourceOptions)options {
  if (!metal_framework::length_allowed(length)) return nil;
  return metal_framework::wrap(metal_framework::allocate(length, options), options);
}
- (id<MTLBuffer>)newBufferWithBytes:(const void*)bytes length:(NSUInteger)length options:(MTLResourceOptions)options {
  if (bytes == nullptr) find("nil-argument", "newBufferWithBytes: NULL");
  if (bytes == nullptr || !metal_framework::length_allowed(length)) return nil;
  auto storage = metal_framework::allocate(length, options);
  if (storage != nullptr) std::memcpy(storage->data, bytes, length);
  return metal_framework::wrap(std::move(storage), options);
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
  auto* storage = new metal_framework::Storage;
  storage->data = static_cast<std::byte*>(bytes);
  storage->size = length;
  storage->mode = mode;
  storage->deallocator = deallocator;
  storage->borrowed = true;
  return metal_framework::wrap(metal_framework::track(storage), options);
}

// --- libraries --------------------------------------------------------------------------------------------------------------

- (id<MTLLibrary>)newDefaultLibrary {
  return nil;  // a program here has no bundle
}
- (id<MTLLibrary>)newLibraryWithSource:(NSString*)source
                               options:(MTLCompileOptions*)options
                                 error:(NSError* __autoreleasing*)out {
  const auto refuse = [&](MTLLibraryError code, const std::string& why) {
    metal_framework::set(out, error(MTLLibraryErrorDomain, static_cast<NSInteger>(code), why));
    return (id<MTLLibrary>)nil;
  };
  if (metal_framework::fails(Fault::kCompile)) return refuse(MTLLibraryErrorInternal, "compiler failed (planted)");
  const auto chosen = metal_framework::compile_options(options);
  if (metal_framework::safe_math_required() && (!chosen || chosen->fast_math)) {
    find("fast-math", "a library is compiled with fast math, which need not keep NaN, infinities and the sign of 0");
  } else if (metal_framework::safe_math_required() && chosen->fast_functions) {
    find("fast-math", "a library is compiled with fast functions, which are less exact than the language says");
  }
  if (!chosen) return refuse(MTLLibraryErrorUnsupported, "unsupported compile options");
  std::string why;
  auto library = metal_framework::engine().compile(text(source), *chosen, why);
  if (library == nullptr) return refuse(MTLLibraryErrorCompileFailure, why);
  MOCLibrary* made = [[MOCLibrary alloc] init];
  made->library = std::move(library);
  made->identity = text(source) + "\n" + std::to_string(chosen->language_major) + "." + std::to_string(chosen->language_minor);
  for (const auto& [name, value] : chosen->macros) made->identity += "\n" + name + "=" + value;
  return made;
}
- (void)newLibraryWithSource:(NSString*)source
                     options:(MTLCompileOptions*)options
           completionHandler:(MTLNewLibraryCompletionHandler)handler {
  dispatch_async(dispatch_get_global_queue(QOS_CLASS_DEFAULT, 0), ^{
    NSError* failed = nil;
    id<MTLLibrary> library = [self newLibraryWithSource:source options:options error:&failed];
    handler(library, failed);
  });
}
- (id<MTLLibrary>)newLibraryWithData:(dispatch_data_t)data error:(NSError* __autoreleasing*)out {
  const void* bytes = nullptr;
  size_t size = 0;
  dispatch_data_t map = dispatch_data_create_map(data, &bytes, &size);
  const auto source = metal_framework::unwrap_source({static_cast<const char*>(bytes), size});
  (void)map;  // keeps the bytes
  return [self sourceLibrary:source error:out];
}
// A library that stands in for a compiled one: its source, without any choice of options.
- (id<MTLLibrary>)sourceLibrary:(const std::optional<std::string>&)source error:(NSError* __autoreleasing*)out {
  if (!source) {
    metal_framework::set(out, error(MTLLibraryErrorDomain, MTLLibraryErrorUnsupported, "invalid library data"));
    return nil;
  }
  MTLCompileOptions* options = [[MTLCompileOptions alloc] init];
  options.mathMode = MTLMathModeSafe;
  options.mathFloatingPointFunctions = MTLMathFloatingPointFunctionsPrecise;
  return [self newLibraryWithSource:string(*source) options:options error:out];
}
- (id<MTLLibrary>)newLibraryWithURL:(NSURL*)url error:(NSError* __autoreleasing*)out {
  return [self newLibraryWithFile:url.path error:out];
}
- (id<MTLLibrary>)newLibraryWithFile:(NSString*)path error:(NSError* __autoreleasing*)out {
  NSData* data = [NSData dataWithContentsOfFile:path];
  if (data == nil) {
    metal_framework::set(out, error(MTLLibraryErrorDomain, MTLLibraryErrorFileNotFound, "no library at " + text(path)));
    return nil;
  }
  const auto source = metal_framework::unwrap_source({static_cast<const char*>(data.bytes), data.length});
  return [self sourceLibrary:source error:out];
}

// --- pipelines --------------------------------------------------------------------------------------------------------------

- (id<MTLComputePipelineState>)newComputePipelineStateWithFunction:(id<MTLFunction>)function
                                                             error:(NSError* __autoreleasing*)out {
  return [self newComputePipelineStateWithFunction:function options:MTLPipelineOptionNone reflection:nullptr error:out];
}
- (id<MTLComputePipelineState>)newComputePipelineStateWithFunction:(id<MTLFunction>)function
                                                           options:(MTLPipelineOption)options
                                                        reflection:(MTLComputePipelineReflection* __autoreleasing*)reflection
                                                             error:(NSError* __autoreleasing*)out {
  MTLComputePipelineDescriptor* descriptor = [[MTLComputePipelineDescriptor alloc] init];
  descriptor.computeFunction = function;
  return [self newComputePipelineStateWithDescriptor:descriptor options:options reflection:reflection error:out];
}
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
  if (metal_framework::fails(Fault::kPipeline)) return refuse("the pipeline could not be made (planted)");
  bool archived = false;
  for (id<MTLBinaryArchive> archive in descriptor.binaryArchives) {
    archived = archived || [(MOCBinaryArchive*)archive contains:function];
  }
  if ((options & MTLPipelineOptionFailOnBinaryArchiveMiss) != 0 && !archived)
    return refuse("no binary archive has the pipeline");
  MOCComputePipelineState* made = [[MOCComputePipelineState alloc] init];
  made->function = function;
  made->max_threads = function->function->max_threads();
  const NSUInteger asked = descriptor.maxTotalThreadsPerThreadgroup;
  if (asked > made->max_threads) return refuse("the kernel allows fewer threads than the descriptor asks for");
  if (asked != 0) made->max_threads = asked;
  made->given_label = [descriptor.label copy];
  if ((options & (MTLPipelineOptionBindingInfo | MTLPipelineOptionBufferTypeInfo)) != 0) {
    made->shown = [[MTLComputePipelineReflection alloc] initWithFunction:*function->function];
    if (reflection) *reflection = made->shown;
  }
  return made;
}
- (void)newComputePipelineStateWithFunction:(id<MTLFunction>)function
                          completionHandler:(MTLNewComputePipelineStateCompletionHandler)handler {
  dispatch_async(dispatch_get_global_queue(QOS_CLASS_DEFAULT, 0), ^{
    NSError* failed = nil;
    id<MTLComputePipelineState> state = [self newComputePipelineStateWithFunction:function error:&failed];
    handler(state, failed);
  });
}

// --- the rest ---------------------------------------------------------------------------------------------------------------

- (id<MTLFence>)newFence {
  return metal_framework::fails(Fault::kEvent) ? nil : [[MOCFence alloc] init];
}
- (id<MTLEvent>)newEvent {
  return [self newSharedEvent];
}
- (id<MTLSharedEvent>)newSharedEvent {
  return metal_framework::fails(Fault::kEvent) ? nil : [[MOCEvent alloc] init];
}
- (id<MTLResidencySet>)newResidencySetWithDescriptor:(MTLResidencySetDescriptor*)descriptor
                                               error:(NSError* __autoreleasing*)out {
  if (!metal_framework::fails(Fault::kResidencySet)) return [[MOCResidencySet alloc] initWithLabel:descriptor.label];
  metal_framework::set(out, error(NSPOSIXErrorDomain, ENOMEM, "no residency set could be made (planted)"));
  return nil;
}
- (id<MTLBinaryArchive>)newBinaryArchiveWithDescriptor:(MTLBinaryArchiveDescriptor*)descriptor
                                                 error:(NSError* __autoreleasing*)out {
  if (metal_framework::fails(Fault::kArchive)) {
    metal_framework::set(out, error(MTLBinaryArchiveDomain, MTLBinaryArchiveErrorInternalError, "planted"));
    return nil;
  }
  MOCBinaryArchive* archive = [[MOCBinaryArchive alloc] init];
  if (descriptor.url != nil && ![archive load:descriptor.url error:out]) return nil;
  return archive;
}
- (id<MTLCounterSampleBuffer>)newCounterSampleBufferWithDescriptor:(MTLCounterSampleBufferDescriptor*)descriptor
                                                             error:(NSError* __autoreleasing*)out {
  if (metal_framework::fails(Fault::kCounters)) {
    metal_framework::set(out, error(MTLCounterErrorDomain, MTLCounterSampleBufferErrorOutOfMemory, "planted"));
    return nil;
  }
  const bool known = [descriptor.counterSet.name isEqualToString:MTLCommonCounterSetTimestamp];
  if (!known || descriptor.sampleCount == 0 || descriptor.sampleCount > 4096) {
    metal_framework::set(out, error(MTLCounterErrorDomain, MTLCounterSampleBufferErrorInvalid,
                                    known ? "1 to 4096 samples may be" : "the descriptor has no counter set of this device"));
    return nil;
  }
  MOCCounterSampleBuffer* made = [[MOCCounterSampleBuffer alloc] init];
  made->samples.assign(descriptor.sampleCount, MTLCounterErrorValue);
  made->given_label = [descriptor.label copy];
  return made;
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

id<MTLDevice> MTLCreateSystemDefaultDevice(void) { return metal_framework::device_removed() ? nil : metal_framework::device(); }
NSArray<id<MTLDevice>>* MTLCopyAllDevices(void) {
  return metal_framework::device_removed() ? @[] : @[ metal_framework::device() ];
}
