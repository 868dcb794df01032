#include <algorithm>

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

// A dispatch as it will run: everything that it needs, whatever the host does meanwhile.
struct Work {
  std::string kernel;
  std::shared_ptr<metal_framework::Function> function;
  Dispatch dispatch;
  std::vector<Bound> bound;
  std::shared_ptr<metal_framework::Pass> pass;
};

std::optional<Failure> run(Work& work, const std::vector<std::shared_ptr<Storage>>& more) {
  for (const Bound& bound : work.bound)
    if (bound.storage) bound.storage->use(work.pass);
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
  MOCComputePipelineState* pipeline;
  std::map<uint32_t, Bound> bindings;
  std::vector<Step> unordered;  // dispatches since the last barrier of a concurrent encoder
}

- (instancetype)initWithOwner:(MOCCommandBuffer*)buffer type:(MTLDispatchType)dispatch_type {
  self = [super initWithOwner:buffer];
  type = dispatch_type;
  return self;
}
- (void)finish {
  [self order];
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
  [owner keep:state presence:pipeline->presence];
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
  if (offset < buffer->storage->size) {
    bindings[static_cast<uint32_t>(index)] = {buffer->storage, offset, nullptr};
    return;
  }
  find("offset-out-of-range", "offset " + std::to_string(offset) + " at index " + std::to_string(index) + " is not inside " +
                                  buffer->storage->describe());
  bindings.erase(static_cast<uint32_t>(index));
}

// --- what Metal refuses -----------------------------------------------------------------------------------------------------

- (BOOL)checkArgument:(const Argument&)argument of:(const std::string&)kernel {
  const std::string who = "kernel " + kernel + " needs '" + argument.name + "' at index " + std::to_string(argument.index);
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
- (BOOL)checkGroups:(const Size3&)groups of:(const Size3&)group in:(const std::string&)kernel {
  const auto wrong = [&](const std::string& why) {
    find("wrong-grid", "kernel " + kernel + ": " + why);
    return NO;
  };
  if (groups.count() == 0) return wrong("the grid is " + shown(groups));
  if (group.count() == 0) return wrong("the threadgroup is " + shown(group));
  if (group.x > 1024 || group.y > 1024 || group.z > 1024 || group.count() > pipeline.maxTotalThreadsPerThreadgroup) {
    return wrong("the threadgroup is " + shown(group) + ", the pipeline allows " +
                 std::to_string(pipeline.maxTotalThreadsPerThreadgroup) + " threads");
  }
  const size_t memory = pipeline.staticThreadgroupMemoryLength;
  if (memory <= metal_framework::kMaxThreadgroupMemory) return YES;
  find("threadgroup-memory", "kernel " + kernel + ": " + std::to_string(memory) + " bytes of threadgroup memory; 32768 may be");
  return NO;
}

// --- dispatches -------------------------------------------------------------------------------------------------------------

- (void)dispatchThreadgroups:(MTLSize)groups threadsPerThreadgroup:(MTLSize)threads {
  if (![self accepts:"dispatch"]) return;
  if (pipeline == nil) return find("missing-pipeline", "dispatch of " + [owner describe] + " without setComputePipelineState:");
  auto work = std::make_shared<Work>();
  work->kernel = pipeline->function->name;
  work->function = pipeline->function->function;
  work->pass = pass;
  work->dispatch.groups = size_of(groups);
  work->dispatch.group = size_of(threads);
  bool sound = [self checkGroups:work->dispatch.groups of:work->dispatch.group in:work->kernel];
  for (const Argument& argument : work->function->arguments()) sound = [self checkArgument:argument of:work->kernel] && sound;
  if (!sound) return;
  for (const auto& [index, bound] : bindings) {
    work->bound.push_back(bound);
    work->dispatch.buffers[index] = bound.binding();
  }
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
  std::reverse(unordered.begin(), unordered.end());  // a missing barrier shows so
  for (Step& step : unordered) [super add:std::move(step)];
  unordered.clear();
}
- (void)memoryBarrierWithScope:(MTLBarrierScope)scope {
  // Kernels here write buffers only.
  if ([self accepts:"memoryBarrierWithScope:"] && (scope & MTLBarrierScopeBuffers) != 0) [self order];
}
@end
