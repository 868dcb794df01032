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
double seconds_now();  // of the steady clock

/// When a command buffer was committed and completed, by one clock for all of them; 0: not yet.
struct Lifetime {
  std::atomic<size_t> committed{0}, completed{0};
};
size_t tick();  // of that clock

/// An encoder, and what the fences that it has waited for put before it.
struct Pass {
  const void* queue;
  std::shared_ptr<Lifetime> commands;
  size_t uses = 0;                                 // of untracked buffers so far
  std::map<std::shared_ptr<Pass>, size_t> before;  // the uses of other encoders that are over
};

/// The memory of a buffer. It outlives the buffer while commands use it, so that a bug of the host is not one of the framework.
struct Storage {
  std::byte* data = nullptr;
  size_t size = 0;
  MTLStorageMode mode = MTLStorageModeShared;
  std::atomic<bool> owned{true};  // false: the buffer object is gone
  bool borrowed = false;
  bool untracked = false;
  std::shared_ptr<Pass> last;  // that used it, untracked
  size_t last_use = 0;
  std::atomic<size_t> requested{0};  // Settings::wired_since when its residency was, ahead of command buffers
  std::mutex label_mutex;
  std::string label;

  std::string describe();  // "buffer 'weights' (64 bytes)"
  /// Finds uses of untracked memory that nothing orders. Two that only read count, too.
  void use(const std::shared_ptr<Pass>& pass);
  ~Storage();
};

/// Whether an object that a command buffer needs, and does not hold where its references are unretained, is still there.
struct Presence {
  std::string name;  // "the pipeline of kernel scale"
  std::atomic<bool> there{true};
};

/// Why a command buffer failed.
struct Failure {
  long code;
  std::string message;
};
using Step = std::function<std::optional<Failure>()>;

}  // namespace metal_framework

@interface MOCBuffer : NSObject <MTLBuffer> {
 @public
  std::shared_ptr<metal_framework::Storage> storage;
  MTLResourceOptions options;
}
@end

@interface MOCFence : NSObject <MTLFence> {
 @public
  std::shared_ptr<metal_framework::Pass> updated_by;
  size_t uses;  // of that encoder, before it updated the fence
}
@end

@interface MOCResidencySet : NSObject <MTLResidencySet> {
 @public
  std::shared_ptr<metal_framework::Presence> presence;
}
- (instancetype)initWithLabel:(NSString*)label;
/// As of the last commit.
- (std::vector<std::shared_ptr<metal_framework::Storage>>)committed;
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
  std::string identity;  // of the library, the name and the constants
}
@end

@interface MOCComputePipelineState : NSObject <MTLComputePipelineState> {
 @public
  MOCFunction* function;
  std::shared_ptr<metal_framework::Presence> presence;
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

@class MOCCommandQueue;
@class MOCCommandEncoder;

@interface MOCCommandBuffer : NSObject <MTLCommandBuffer> {
 @public
  MOCCommandQueue* queue;
  BOOL retained;
  std::vector<metal_framework::Step> steps;
  std::vector<std::shared_ptr<metal_framework::Storage>> used;
  std::vector<std::shared_ptr<metal_framework::Storage>> resident;
  std::vector<__strong id> kept;
  std::vector<std::shared_ptr<metal_framework::Presence>> needed;
  __unsafe_unretained MOCCommandEncoder* open;
  BOOL committed, enqueued;  // guarded by the queue
  std::shared_ptr<metal_framework::Lifetime> lifetime;
}
- (instancetype)initWithQueue:(MOCCommandQueue*)queue retained:(BOOL)retained;
/// Finds and says no when commands can no longer be added.
- (BOOL)accepts:(const char*)what;
/// Keeps the object as long as the commands may need it. Where references are unretained: finds later that it is gone too
/// early.
- (void)keep:(id)object presence:(const std::shared_ptr<metal_framework::Presence>&)presence;
- (void)use:(MOCBuffer*)buffer;
- (std::string)describe;
- (void)execute;  // on the queue's thread
- (void)complete;
@end

@interface MOCCommandQueue : NSObject <MTLCommandQueue>
- (void)enqueue:(MOCCommandBuffer*)buffer;
- (BOOL)commit:(MOCCommandBuffer*)buffer;
- (void)abandon:(MOCCommandBuffer*)buffer;
- (void)completed;
- (void)later:(std::function<void()>)handlers;
- (BOOL)isHandling;
@end

@interface MOCCommandEncoder : NSObject <MTLCommandEncoder> {
 @public
  MOCCommandBuffer* owner;
  std::shared_ptr<metal_framework::Pass> pass;
  BOOL ended;
  NSInteger open_groups;  // of debugging
}
- (instancetype)initWithOwner:(MOCCommandBuffer*)owner;
- (BOOL)accepts:(const char*)what;
- (void)add:(metal_framework::Step)step;
/// Called once, by endEncoding or by whoever ends it in the host's stead.
- (void)finish;
// Those of both protocols.
- (void)updateFence:(id<MTLFence>)fence;
- (void)waitForFence:(id<MTLFence>)fence;
@end

@interface MOCComputeCommandEncoder : MOCCommandEncoder <MTLComputeCommandEncoder>
- (instancetype)initWithOwner:(MOCCommandBuffer*)owner type:(MTLDispatchType)type;
@end

@interface MOCBlitCommandEncoder : MOCCommandEncoder <MTLBlitCommandEncoder>
@end
