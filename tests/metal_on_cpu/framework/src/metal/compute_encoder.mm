#include <algorithm>
#include <cstring>

#include "metal/objects.h"

using metal_framework::Argument;
using metal_framework::Dispatch;
using metal_framework::Failure;
using metal_framework::find;
using metal_framework::Size3;
using metal_framework::Step;
using metal_framework::Storage;
using metal_framework::text;

namespace {

// What is bound to an index: a buffer from an offset on, or a copy of the host's bytes.
struct Bound {
  std::shared_ptr<Storage> storage;
  size_t offset = 0;
  std::shared_ptr<std::vector<std::byte>> bytes;

  size_t size() const { return storage ? (offset < storage->size ? storage->size - offset : 0) : bytes->size(); }
  metal_framework::Binding binding() const { return {storage ? storage->data + offset : bytes->data(), size()}; }
  std::string describe() const {
    if (!storage) return "setBytes of " + std::to_string(bytes->size()) + " bytes";
    return storage->describe() + " from byte " + std::to_string(offset);
  }
};

// What useResource: says of memory that the kernel reaches by address.
struct Used {
  std::shared_ptr<Storage> storage;
  bool read_only = false;
};

// A dispatch as it will run: everything that it needs, whatever the host does meanwhile.
struct Work {
  std::string kernel;
  std::shared_ptr<metal_framework::Function> function;
  Dispatch dispatch;
  std::vector<Bound> bound;
  std::vector<Used> resident;
  std::shared_ptr<Storage> indirect;  // where the grid is read from, or empty
  size_t indirect_offset = 0;
};

std::optional<Failure> run(Work& work, const std::vector<std::shared_ptr<Storage>>& more) {
  if (work.indirect) {
    uint32_t grid[3];
    std::memcpy(grid, work.indirect->data + work.indirect_offset, sizeof grid);
    work.dispatch.grid = {grid[0], grid[1], grid[2]};
    if (work.dispatch.grid.count() == 0) return std::nullopt;
  }
  for (const Used& used : work.resident) {
    work.dispatch.resident.push_back({used.storage->data, used.storage->size, used.read_only});
  }
  for (const auto& storage : more) work.dispatch.resident.push_back({storage->data, storage->size});
  const metal_framework::Outcome outcome = work.function->run(work.dispatch);
  for (const auto& problem : outcome.problems) find(problem.kind, "kernel " + work.kernel + ": " + problem.message);
  if (outcome.error.empty()) return std::nullopt;
  find("dispatch-refused", "kernel " + work.kernel + ": " + outcome.error);
  return Failure{MTLCommandBufferErrorInternal, outcome.error};
}

Size3 size_of(MTLSize size) { return {size.width, size.height, size.depth}; }
std::string shown(const Size3& size) {
  return std::to_string(size.x) + " x " + std::to_string(size.y) + " x " + std::to_string(size.z);
}

}  // namespace

@implementation MOCComputeCommandEncoder {
  MTLDispatchType type;
  MTLComputePassDescriptor* descriptor;
  MOCComputePipelineState* pipeline;
  std::map<uint32_t, Bound> bindings;
  std::map<uint32_t, size_t> threadgroup_memory;
  std::vector<Used> resources;
  std::vector<Step> unordered;  // dispatches since the last barrier of a concurrent encoder
}

- (instancetype)initWithOwner:(MOCCommandBuffer*)buffer
                         type:(MTLDispatchType)dispatch_type
                   descriptor:(MTLComputePassDescriptor*)pass {
  self = [super initWithOwner:buffer];
  type = dispatch_type;
  descriptor = pass;
  if (pass != nil) [self sampleAtBoundary:YES];
  return self;
}
- (MTLDispatchType)dispatchType {
  return type;
}
- (void)sampleAtBoundary:(BOOL)start {
  for (NSUInteger i = 0; i < 4; ++i) {
    MTLComputePassSampleBufferAttachmentDescriptor* attachment = descriptor.sampleBufferAttachments[i];
    const NSUInteger index = start ? attachment.startOfEncoderSampleIndex : attachment.endOfEncoderSampleIndex;
    if (attachment.sampleBuffer == nil || index == MTLCounterDontSample) continue;
    [self sampleCountersInBuffer:attachment.sampleBuffer atSampleIndex:index withBarrier:NO];
  }
}
- (void)finish {
  [self order];
  if (descriptor != nil) [self sampleAtBoundary:NO];
  [super finish];
}

// --- bindings ---------------------------------------------------------------------------------------------------------------

- (BOOL)acceptsIndex:(NSUInteger)index for:(const char*)what {
  if (![self accepts:what]) return NO;
  if (index <= metal_framework::kMaxBufferIndex) return YES;
  find("index-out-of-range", std::string(what) + " at index " + std::to_string(index) + "; the last is 30");
  return NO;
}
- (void)setComputePipelineState:(id<MTLComputePipelineState>)state {
  if (![self accepts:"setComputePipelineState:"]) return;
  if (state == nil) return find("nil-argument", "setComputePipelineState: nil");
  pipeline = (MOCComputePipelineState*)state;
  [owner keep:state named:"the pipeline of kernel " + pipeline->function->name];
}
- (void)setBytes:(const void*)bytes length:(NSUInteger)length atIndex:(NSUInteger)index {
  if (![self acceptsIndex:index for:"setBytes:"]) return;
  if (bytes == nullptr || length == 0) return find("nil-argument", "setBytes: without bytes at index " + std::to_string(index));
  if (length > metal_framework::kMaxInlineBytes) {
    find("bytes-too-long",
         "setBytes: of " + std::to_string(length) + " bytes at index " + std::to_string(index) + "; 4096 may be");
  }
  const auto* first = static_cast<const std::byte*>(bytes);
  bindings[static_cast<uint32_t>(index)] = {nullptr, 0, std::make_shared<std::vector<std::byte>>(first, first + length)};
}
- (void)setBuffer:(id<MTLBuffer>)given offset:(NSUInteger)offset atIndex:(NSUInteger)index {
  if (![self acceptsIndex:index for:"setBuffer:"]) return;
  if (given == nil) {
    bindings.erase(static_cast<uint32_t>(index));
    return;
  }
  MOCBuffer* buffer = (MOCBuffer*)given;
  [owner use:buffer];
  bindings[static_cast<uint32_t>(index)] = {buffer->storage, 0, nullptr};
  [self setBufferOffset:offset atIndex:index];
}
- (void)setBufferOffset:(NSUInteger)offset atIndex:(NSUInteger)index {
  if (![self acceptsIndex:index for:"setBufferOffset:"]) return;
  const auto entry = bindings.find(static_cast<uint32_t>(index));
  if (entry == bindings.end() || !entry->second.storage) {
    return find("missing-binding", "setBufferOffset: at index " + std::to_string(index) + ", where no buffer is bound");
  }
  if (offset >= entry->second.storage->size) {
    find("offset-out-of-range", "offset " + std::to_string(offset) + " at index " + std::to_string(index) + " is not inside " +
                                    entry->second.storage->describe());
    bindings.erase(entry);
    return;
  }
  entry->second.offset = offset;
}
- (void)setBuffers:(const id<MTLBuffer>[])buffers offsets:(const NSUInteger[])offsets withRange:(NSRange)range {
  for (NSUInteger i = 0; i < range.length; ++i) [self setBuffer:buffers[i] offset:offsets[i] atIndex:range.location + i];
}
- (void)setThreadgroupMemoryLength:(NSUInteger)length atIndex:(NSUInteger)index {
  if (![self acceptsIndex:index for:"setThreadgroupMemoryLength:"]) return;
  if (length % 16 != 0) {
    find("threadgroup-memory",
         "length " + std::to_string(length) + " at index " + std::to_string(index) + " is no multiple of 16");
  }
  threadgroup_memory[static_cast<uint32_t>(index)] = length;
}
- (void)useResource:(id<MTLResource>)resource usage:(MTLResourceUsage)usage {
  if (![self accepts:"useResource:"]) return;
  if (resource == nil) return find("nil-argument", "useResource: nil");
  [owner use:(MOCBuffer*)resource];
  resources.push_back({((MOCBuffer*)resource)->storage, (usage & MTLResourceUsageWrite) == 0});
}
- (void)useResources:(const id<MTLResource>[])all count:(NSUInteger)count usage:(MTLResourceUsage)usage {
  for (NSUInteger i = 0; i < count; ++i) [self useResource:all[i] usage:usage];
}

// --- what Metal refuses -----------------------------------------------------------------------------------------------------

- (BOOL)checkArgument:(const Argument&)argument of:(const std::string&)kernel {
  const std::string who = "kernel " + kernel + " needs '" + argument.name + "' at index " + std::to_string(argument.index);
  if (argument.kind == Argument::Kind::kThreadgroup) {
    const auto length = threadgroup_memory.find(argument.index);
    if (length != threadgroup_memory.end() && length->second >= argument.size && length->second != 0) return YES;
    find("missing-binding", who + ", threadgroup memory whose length is not set");
    return NO;
  }
  const auto entry = bindings.find(argument.index);
  if (entry == bindings.end()) {
    find("missing-binding", who + ", where nothing is bound");
    return NO;
  }
  const Bound& bound = entry->second;
  if (bound.size() < argument.size) {
    find("buffer-too-small", who + ", " + std::to_string(argument.size) + " bytes, and finds " + bound.describe());
    return NO;
  }
  if (argument.alignment != 0 && bound.offset % argument.alignment != 0) {
    find("misaligned-offset", who + ", aligned to " + std::to_string(argument.alignment) + ", and finds " + bound.describe());
    return NO;
  }
  return YES;
}
- (BOOL)checkGrid:(const Size3&)grid group:(const Size3&)group of:(const std::string&)kernel {
  const auto wrong = [&](const std::string& why) {
    find("wrong-grid", "kernel " + kernel + ": " + why);
    return NO;
  };
  if (grid.count() == 0) return wrong("the grid is " + shown(grid));
  if (group.count() == 0) return wrong("the threadgroup is " + shown(group));
  if (group.x > 1024 || group.y > 1024 || group.z > 1024 || group.count() > pipeline->max_threads) {
    return wrong("the threadgroup is " + shown(group) + ", the pipeline allows " + std::to_string(pipeline->max_threads) +
                 " threads");
  }
  size_t memory = pipeline.staticThreadgroupMemoryLength;
  for (const auto& [index, length] : threadgroup_memory) memory += length;
  if (memory <= metal_framework::kMaxThreadgroupMemory) return YES;
  find("threadgroup-memory", "kernel " + kernel + ": " + std::to_string(memory) + " bytes of threadgroup memory; 32768 may be");
  return NO;
}

// --- dispatches -------------------------------------------------------------------------------------------------------------

- (std::shared_ptr<Work>)prepare:(MTLSize)grid threads:(BOOL)threads group:(MTLSize)group {
  if (![self accepts:"dispatch"]) return nullptr;
  if (pipeline == nil) {
    find("missing-pipeline", "dispatch of " + [owner describe] + " without setComputePipelineState:");
    return nullptr;
  }
  auto work = std::make_shared<Work>();
  work->kernel = pipeline->function->name;
  work->function = pipeline->function->function;
  bool sound = [self checkGrid:size_of(grid) group:size_of(group) of:work->kernel];
  for (const Argument& argument : work->function->arguments()) sound = [self checkArgument:argument of:work->kernel] && sound;
  if (!sound) return nullptr;
  work->dispatch.grid = size_of(grid);
  work->dispatch.grid_is_threads = threads;
  work->dispatch.group = size_of(group);
  work->dispatch.threadgroup_memory = threadgroup_memory;
  for (const auto& [index, bound] : bindings) {
    work->bound.push_back(bound);
    work->dispatch.buffers[index] = bound.binding();
  }
  work->resident = resources;
  return work;
}
- (void)addWork:(std::shared_ptr<Work>)work {
  if (work == nullptr) return;
  MOCCommandBuffer* __unsafe_unretained buffer = owner;  // runs the step itself
  Step step = [work, buffer] { return run(*work, buffer->resident); };
  if (type == MTLDispatchTypeConcurrent)
    unordered.push_back(std::move(step));
  else
    [super add:std::move(step)];
}
// Whatever else is encoded keeps its place among concurrent dispatches.
- (void)add:(Step)step {
  [self order];
  [super add:std::move(step)];
}
- (void)order {
  if (metal_framework::reverse_concurrent()) std::reverse(unordered.begin(), unordered.end());
  for (Step& step : unordered) [super add:std::move(step)];
  unordered.clear();
}
- (void)dispatchThreadgroups:(MTLSize)groups threadsPerThreadgroup:(MTLSize)threads {
  [self addWork:[self prepare:groups threads:NO group:threads]];
}
- (void)dispatchThreads:(MTLSize)grid threadsPerThreadgroup:(MTLSize)threads {
  [self addWork:[self prepare:grid threads:YES group:threads]];
}
- (void)dispatchThreadgroupsWithIndirectBuffer:(id<MTLBuffer>)buffer
                          indirectBufferOffset:(NSUInteger)offset
                         threadsPerThreadgroup:(MTLSize)threads {
  if (![self accepts:"dispatchThreadgroupsWithIndirectBuffer:"]) return;
  if (buffer == nil) return find("nil-argument", "dispatchThreadgroupsWithIndirectBuffer: nil");
  MOCBuffer* arguments = (MOCBuffer*)buffer;
  if (offset % 4 != 0 || offset + 12 > arguments->storage->size || offset + 12 < offset) {
    return find("offset-out-of-range", "three counts of threadgroups at byte " + std::to_string(offset) + " are not inside " +
                                           arguments->storage->describe());
  }
  [owner use:arguments];
  const auto work = [self prepare:MTLSizeMake(1, 1, 1) threads:NO group:threads];
  if (work == nullptr) return;
  work->indirect = arguments->storage;
  work->indirect_offset = offset;
  [self addWork:work];
}
- (void)memoryBarrierWithScope:(MTLBarrierScope)scope {
  // Kernels here write buffers only.
  if ([self accepts:"memoryBarrierWithScope:"] && (scope & MTLBarrierScopeBuffers) != 0) [self order];
}
- (void)memoryBarrierWithResources:(const id<MTLResource>[])all count:(NSUInteger)count {
  if ([self accepts:"memoryBarrierWithResources:"]) [self order];
}
@end
