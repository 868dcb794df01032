// The classes behind Metal's protocols, for each other's eyes.
#pragma once

#import <Metal/Metal.h>

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "engine.h"
#include "foundation/text.h"
#include "metal/checks.h"

namespace metal_framework {

inline constexpr NSUInteger kMaxThreadgroupMemory = 32768;
inline constexpr NSUInteger kMaxBufferLength = NSUInteger{16} << 30;
inline constexpr NSUInteger kMaxBufferIndex = 30;
inline constexpr NSUInteger kMaxInlineBytes = 4096;
inline constexpr NSUInteger kSimdWidth = 32;

id<MTLDevice> device();
Engine& engine();
double seconds_now();        // of the steady clock, as CACurrentMediaTime has it
uint64_t nanoseconds_now();  // the same

/// The memory of a buffer. It outlives the buffer while commands use it, so that a bug of the host is not one of the framework.
struct Storage {
  std::byte* data = nullptr;
  size_t size = 0;
  MTLStorageMode mode = MTLStorageModeShared;
  std::atomic<bool> owned{true};  // false: the buffer object is gone
  void (^deallocator)(void*, NSUInteger) = nil;
  bool borrowed = false;
  std::atomic<bool> requested{false};  // its residency, ahead of command buffers
  std::mutex label_mutex;
  std::string label;

  std::string describe();  // "buffer 'weights' (64 bytes)"
  ~Storage();
};

/// What a command buffer needs and does not hold, since its references are unretained.
struct Unretained {
  __weak id object;
  std::string name;  // "the pipeline of kernel scale"
};

/// Why a command buffer failed.
struct Failure {
  long code;
  std::string message;
};
using Step = std::function<std::optional<Failure>()>;

/// What an error tells of an encoder: its name, its signposts, and which of the command buffer's steps are its own.
struct EncoderRecord {
  std::string label;
  std::vector<std::string> signposts;
  size_t first = 0, last = 0;
};
std::optional<CompileOptions> compile_options(MTLCompileOptions* options);

}  // namespace metal_framework

@interface MOCBuffer : NSObject <MTLBuffer> {
 @public
  std::shared_ptr<metal_framework::Storage> storage;
  MTLResourceOptions options;
}
@end

@interface MOCFence : NSObject <MTLFence> {
 @public
  std::atomic<bool> updated;
}
@end

@interface MOCEvent : NSObject <MTLSharedEvent> {
 @public
  std::mutex mutex;
  std::condition_variable changed;
  uint64_t current;
  struct Notice {
    uint64_t value;
    MTLSharedEventListener* listener;
    MTLSharedEventNotificationBlock block;
  };
  std::vector<Notice> notices;
}
- (void)signal:(uint64_t)value;
/// False after so long in vain, or when the device is gone.
- (BOOL)waitFor:(uint64_t)value seconds:(double)seconds;
@end

@interface MOCResidencySet : NSObject <MTLResidencySet>
- (instancetype)initWithLabel:(NSString*)label;
/// As of the last commit.
- (std::vector<std::shared_ptr<metal_framework::Storage>>)committed;
@end

@interface MTLFunctionConstant ()
- (instancetype)initWithConstant:(const metal_framework::FunctionConstant&)constant;
@end

@interface MTLFunctionConstantValues () {
 @public
  metal_framework::Constants constants;
}
@end

@interface MOCLibrary : NSObject <MTLLibrary> {
 @public
  std::shared_ptr<metal_framework::Library> library;
  std::string identity;  // source and options
}
@end

@interface MOCFunction : NSObject <MTLFunction> {
 @public
  std::shared_ptr<metal_framework::Function> function;
  std::string name;
  std::vector<metal_framework::FunctionConstant> declared;
  std::string identity;  // of the library, the name and the constants
}
@end

@interface MOCComputePipelineState : NSObject <MTLComputePipelineState> {
 @public
  MOCFunction* function;
  NSUInteger max_threads;
  NSString* given_label;
  MTLComputePipelineReflection* shown;
}
@end

@interface MOCBinaryArchive : NSObject <MTLBinaryArchive> {
 @public
  std::mutex mutex;
  std::set<std::string> entries;
}
- (BOOL)contains:(MOCFunction*)function;
- (BOOL)load:(NSURL*)url error:(NSError* __autoreleasing*)error;
@end

@interface MOCCounterSampleBuffer : NSObject <MTLCounterSampleBuffer> {
 @public
  std::mutex mutex;
  std::vector<uint64_t> samples;
  NSString* given_label;
}
- (void)sample:(NSUInteger)index;
@end

@class MOCCommandQueue;
@class MOCCommandEncoder;

@interface MOCCommandBuffer : NSObject <MTLCommandBuffer> {
 @public
  MOCCommandQueue* queue;
  BOOL retained;
  MTLCommandBufferErrorOption options;
  std::vector<metal_framework::EncoderRecord> encoders;
  std::vector<metal_framework::Step> steps;
  std::vector<std::shared_ptr<metal_framework::Storage>> used;
  std::vector<std::shared_ptr<metal_framework::Storage>> resident;
  std::vector<__strong id> kept;
  std::vector<metal_framework::Unretained> unretained;
  __unsafe_unretained MOCCommandEncoder* open;
  BOOL committed, enqueued;  // guarded by the queue
}
- (instancetype)initWithQueue:(MOCCommandQueue*)queue retained:(BOOL)retained options:(MTLCommandBufferErrorOption)options;
/// Finds and says no when commands can no longer be added.
- (BOOL)accepts:(const char*)what;
/// Keeps the object as long as the commands may need it. Where references are unretained: finds later that it is gone too
/// early.
- (void)keep:(id)object named:(const std::string&)name;
- (void)use:(MOCBuffer*)buffer;
- (std::string)describe;
- (void)execute;  // on the queue's thread
- (void)complete;
@end

@interface MOCCommandQueue : NSObject <MTLCommandQueue>
- (instancetype)initWithCount:(NSUInteger)count;
- (void)enqueue:(MOCCommandBuffer*)buffer;
- (BOOL)commit:(MOCCommandBuffer*)buffer;
- (void)abandon:(MOCCommandBuffer*)buffer;
- (void)completed;
- (void)later:(std::function<void()>)handlers;
- (BOOL)isHandling;
- (std::vector<std::shared_ptr<metal_framework::Storage>>)resident;
@end

@interface MOCCommandEncoder : NSObject <MTLCommandEncoder> {
 @public
  MOCCommandBuffer* owner;
  BOOL ended;
  NSInteger open_groups;  // of debugging
  metal_framework::EncoderRecord record;
}
- (instancetype)initWithOwner:(MOCCommandBuffer*)owner;
- (BOOL)accepts:(const char*)what;
- (void)add:(metal_framework::Step)step;
/// Called once, by endEncoding or by whoever ends it in the host's stead.
- (void)finish;
// Those of both protocols.
- (void)updateFence:(id<MTLFence>)fence;
- (void)waitForFence:(id<MTLFence>)fence;
- (void)sampleCountersInBuffer:(id<MTLCounterSampleBuffer>)buffer atSampleIndex:(NSUInteger)index withBarrier:(BOOL)barrier;
@end

@interface MOCComputeCommandEncoder : MOCCommandEncoder <MTLComputeCommandEncoder>
- (instancetype)initWithOwner:(MOCCommandBuffer*)owner
                         type:(MTLDispatchType)type
                   descriptor:(MTLComputePassDescriptor*)descriptor;
@end

@interface MOCBlitCommandEncoder : MOCCommandEncoder <MTLBlitCommandEncoder>
@end

@interface MTLComputePipelineReflection ()
- (instancetype)initWithFunction:(const metal_framework::Function&)function;
@end
