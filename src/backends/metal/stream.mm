#include <algorithm>
#include <cinttypes>
#include <mutex>
#include <string>
#include <vector>

#include "backends/metal/errors.h"
#include "backends/metal/objects.h"
#include "backends/metal/progress.h"

namespace metal_marlin::metal {
namespace {

using device::BufferRef;

constexpr uint32_t kHelperThreads = 256;

// Checks that [offset, offset + bytes) lies in the buffer.
Status in_range(const char* what, const BufferRef& buffer, uint64_t offset, uint64_t bytes) {
  if (buffer == nullptr) return Status::error(MARLIN_E_ARGUMENT, "%s: no buffer", what);
  if (offset <= buffer->bytes() && bytes <= buffer->bytes() - offset) return {};
  return Status::error(MARLIN_E_ARGUMENT,
                       "%s: bytes [%" PRIu64 ", %" PRIu64 " + %" PRIu64 ") of a buffer of %" PRIu64,
                       what, offset, offset, bytes, buffer->bytes());
}

MTLSize native(const device::Size3& size) { return MTLSizeMake(size.x, size.y, size.z); }
uint64_t count(const device::Size3& size) { return uint64_t{size.x} * size.y * size.z; }

class MetalStream final : public device::Stream {
 public:
  MetalStream(std::shared_ptr<Shared> shared, StreamTrace trace, id<MTLCommandQueue> queue,
              id<MTLFence> wait = nil, id<MTLFence> update = nil)
      : shared_(std::move(shared)), trace_(std::move(trace)), queue_(queue) {
    if (wait != nil) fences_.waits = {wait};
    if (update != nil) fences_.updates = {update};
  }
  /// A stream on the host's own command buffer or encoder.
  MetalStream(std::shared_ptr<Shared> shared, StreamTrace trace, std::shared_ptr<Commands> hosts)
      : shared_(std::move(shared)),
        trace_(std::move(trace)),
        commands_(std::move(hosts)),
        is_hosts_(true),
        is_encoder_(commands_->buffer() == nil) {
    if (!is_encoder_) report_when_done();
  }

  ~MetalStream() override {
    @autoreleasepool {
      if (commands_ != nullptr) commands_->end_encoder();
      commands_ = nullptr;
    }
  }

  Status dispatch(const device::Dispatch& dispatch) override {
    @autoreleasepool {
      MARLIN_RETURN_IF_ERROR(check(dispatch));
      MARLIN_RETURN_IF_ERROR(open_commands());
      MARLIN_RETURN_IF_ERROR(commands_->open_compute());
      id<MTLComputeCommandEncoder> compute = commands_->compute();
      // A string for each dispatch takes longer than to record the dispatch.
      const char* const step = dispatch.what.step;
      const bool labelled = *step != '\0' && MTLCaptureManager.sharedCaptureManager.isCapturing;
      if (labelled)
        [compute pushDebugGroup:to_string((std::string("metal-marlin: ") + step).c_str())];
      if (recorded_ != nullptr) recorded_->push_back(dispatch.what);
      [compute
          setComputePipelineState:static_cast<const MetalKernel&>(*dispatch.kernel).pipeline()];
      commands_->keep(dispatch.kernel);
      for (const device::Argument& a : dispatch.arguments) {
        if (a.buffer != nullptr)
          [compute setBuffer:use(a.buffer) offset:a.offset atIndex:a.index];
        else
          [compute setBytes:a.value.data() length:a.value.size() atIndex:a.index];
      }
      [compute dispatchThreadgroups:native(dispatch.groups)
              threadsPerThreadgroup:native(dispatch.threads)];
      if (labelled) [compute popDebugGroup];
      return {};
    }
  }

  Status copy(const BufferRef& from, uint64_t from_offset, const BufferRef& to, uint64_t to_offset,
              uint64_t bytes) override {
    @autoreleasepool {
      MARLIN_RETURN_IF_ERROR(in_range("copy from", from, from_offset, bytes));
      MARLIN_RETURN_IF_ERROR(in_range("copy to", to, to_offset, bytes));
      if (bytes == 0) return {};
      const uint64_t first = from->address() + from_offset, second = to->address() + to_offset;
      if (first < second + bytes && second < first + bytes)
        return Status::error(MARLIN_E_ARGUMENT, "copy of %" PRIu64 " bytes onto itself", bytes);
      if (!is_encoder_ && (from_offset | to_offset | bytes) % 4 == 0) {
        MARLIN_ASSIGN(id<MTLBlitCommandEncoder> blit, open_blit());
        [blit copyFromBuffer:use(from)
                 sourceOffset:from_offset
                     toBuffer:use(to)
            destinationOffset:to_offset
                         size:bytes];
        return {};
      }
      const device::Argument arguments[] = {
          {0, from, from_offset, {}}, {1, to, to_offset, {}}, {2, nullptr, 0, bytes_of(bytes)}};
      return by_helper("marlin_copy_bytes", arguments, bytes);
    }
  }

  Status fill(const BufferRef& to, uint64_t offset, uint64_t bytes, uint8_t value) override {
    @autoreleasepool {
      MARLIN_RETURN_IF_ERROR(in_range("fill", to, offset, bytes));
      if (bytes == 0) return {};
      if (!is_encoder_ && (offset | bytes) % 4 == 0) {
        MARLIN_ASSIGN(id<MTLBlitCommandEncoder> blit, open_blit());
        [blit fillBuffer:use(to) range:NSMakeRange(offset, bytes) value:value];
        return {};
      }
      const device::Argument arguments[] = {
          {0, to, offset, {}}, {1, nullptr, 0, bytes_of(value)}, {2, nullptr, 0, bytes_of(bytes)}};
      return by_helper("marlin_fill_bytes", arguments, bytes);
    }
  }

  Status barrier() override {
    @autoreleasepool {
      if (commands_ == nullptr) return {};
      if (commands_->compute() != nil)
        [commands_->compute() memoryBarrierWithScope:MTLBarrierScopeBuffers];
      else
        commands_->end_encoder();  // Metal orders encoders by the memory that they use
      return {};
    }
  }

  Status commit() override {
    @autoreleasepool {
      if (commands_ == nullptr) return {};
      // The host cannot use its command buffer while an encoder of ours is open.
      MARLIN_RETURN_IF_ERROR(commands_->finish(shared_->residency));
      if (is_hosts_) return {};
      report_when_done();
      progress_->committed();
      [commands_->buffer() commit];
      fences_ = commands_->fences();
      commands_ = nullptr;
      return {};
    }
  }

  // Metal orders command buffers of a queue by the memory that they use. The host may have memory
  // that Metal does not track, for which a fence orders them.
  Status split() override {
    @autoreleasepool {
      if (commands_ == nullptr || is_hosts_) return {};
      if (commands_->fences().updates.empty()) {
        id<MTLFence> fence = [shared_->device newFence];
        if (fence == nil) return Status::error(MARLIN_E_MEMORY, "no fence could be made");
        commands_->order(nil, fence);
      }
      return commit();
    }
  }

  Status wait(uint64_t timeout_ns) override {
    if (is_hosts_)
      return Status::error(MARLIN_E_ARGUMENT,
                           "only the host knows when its own command buffer is done");
    return progress_->wait(timeout_ns);
  }
  Status notify(void (*done)(void* user, marlin_status status), void* user) override {
    if (is_hosts_) return wait(0);
    progress_->notify(done, user);
    return {};
  }
  Status failure() const override { return progress_->failure(); }
  double busy_seconds() const override { return progress_->busy_seconds(); }

 private:
  template <class T>
  static std::span<const std::byte> bytes_of(const T& value) {
    return std::as_bytes(std::span(&value, 1));
  }

  static Status check(const device::Dispatch& d) {
    if (d.kernel == nullptr) return Status::error(MARLIN_E_ARGUMENT, "dispatch: no kernel");
    if (count(d.groups) == 0 || count(d.threads) == 0 ||
        count(d.threads) > d.kernel->max_threads()) {
      return Status::error(
          MARLIN_E_ARGUMENT,
          "dispatch: %u x %u x %u threadgroups of %u x %u x %u threads; at most %u threads",
          d.groups.x, d.groups.y, d.groups.z, d.threads.x, d.threads.y, d.threads.z,
          d.kernel->max_threads());
    }
    for (const device::Argument& a : d.arguments) {
      if (a.buffer != nullptr && a.offset >= a.buffer->bytes()) {
        return Status::error(MARLIN_E_ARGUMENT,
                             "dispatch: argument %u begins at byte %" PRIu64 " of %" PRIu64,
                             a.index, a.offset, a.buffer->bytes());
      }
      if (a.buffer == nullptr &&
          (a.value.empty() || a.value.size() > device::Argument::kMaxInline)) {
        return Status::error(MARLIN_E_ARGUMENT,
                             "dispatch: argument %u has %zu bytes; 1 to %zu may be inline", a.index,
                             a.value.size(), device::Argument::kMaxInline);
      }
    }
    return {};
  }

  Status by_helper(std::string_view name, std::span<const device::Argument> arguments,
                   uint64_t bytes) {
    constexpr uint64_t kMaxGroups = 65535;  // of one dimension
    const uint64_t groups = (bytes + kHelperThreads - 1) / kHelperThreads,
                   columns = std::min(groups, kMaxGroups);
    device::Dispatch made;
    MARLIN_ASSIGN(made.kernel, shared_->pipelines.kernel(name, {}));
    made.arguments = arguments;
    made.groups = {static_cast<uint32_t>(columns),
                   static_cast<uint32_t>((groups + columns - 1) / columns), 1};
    made.threads = {kHelperThreads, 1, 1};
    return dispatch(made);
  }

  Status open_commands() {
    if (commands_ != nullptr) return {};
    id<MTLCommandBuffer> made = [queue_ commandBuffer];
    if (made == nil) return Status::error(MARLIN_E_MEMORY, "no command buffer could be made");
    made.label = @"metal-marlin";
    commands_ = std::make_shared<Commands>(made, false, fences_);
    return {};
  }
  Result<id<MTLBlitCommandEncoder>> open_blit() {
    MARLIN_RETURN_IF_ERROR(open_commands());
    MARLIN_RETURN_IF_ERROR(commands_->open_blit());
    return commands_->blit();
  }
  /// Returns the buffer for a command that is being recorded, and keeps it.
  id<MTLBuffer> use(const BufferRef& buffer) {
    commands_->keep(buffer);
    return static_cast<const MetalBuffer&>(*buffer).buffer();
  }

  void report_when_done() {
    const std::shared_ptr<Progress> progress = progress_;
    const std::shared_ptr<Kept> kept = commands_->kept();
    const std::shared_ptr<Steps> steps = recorded_;
    if (!is_hosts_ && trace_) recorded_ = std::make_shared<Steps>();
    const StreamTrace trace = trace_;
    [commands_->buffer() addCompletedHandler:^(id<MTLCommandBuffer> done) {
      kept->let_go();  // first, so that a waiting thread finds it free
      const bool failed = done.status == MTLCommandBufferStatusError;
      if (steps != nullptr && !failed) tell(trace, *steps, done);
      progress->completed(failed ? to_status(done.error, "the GPU") : Status(),
                          done.GPUEndTime - done.GPUStartTime);
    }];
  }

  using Steps = std::vector<TracedStep>;
  static uint64_t nanoseconds(CFTimeInterval seconds) {
    return static_cast<uint64_t>(seconds * 1e9);
  }
  /// The GPU times a command buffer as a whole.
  static void tell(const StreamTrace& trace, const Steps& steps, id<MTLCommandBuffer> done) {
    TracedTimes times{nanoseconds(done.GPUStartTime), nanoseconds(done.GPUEndTime)};
    times.device_ns = times.end_ns - times.begin_ns;
    times.together = static_cast<uint32_t>(steps.size());
    for (const TracedStep& step : steps) trace.tell(step, times);
  }

  std::shared_ptr<Shared> shared_;
  const StreamTrace trace_;
  // In the command buffer; null if nobody listens.
  std::shared_ptr<Steps> recorded_ = trace_ ? std::make_shared<Steps>() : nullptr;
  id<MTLCommandQueue> queue_ = nil;
  Fences fences_;                       // of the next command buffer
  std::shared_ptr<Commands> commands_;  // null: nothing is recorded
  const std::shared_ptr<Progress> progress_ = std::make_shared<Progress>();
  const bool is_hosts_ = false, is_encoder_ = false;
};

Status wrong_object(const char* what, const char* expected) {
  return Status::error(MARLIN_E_ARGUMENT, "stream: %s is no %s of this device", what, expected);
}

}  // namespace

Result<std::unique_ptr<device::Stream>> create_stream(std::shared_ptr<Shared> shared,
                                                      const device::StreamSource& source) {
  const auto fits = [&](id object, Protocol* protocol) {
    return [object conformsToProtocol:protocol] && is_of([object device], *shared);
  };
  id object = (__bridge id)source.native;
  id wait = (__bridge id)source.wait_fence, update = (__bridge id)source.update_fence;
  for (id fence : {wait, update})
    if (fence != nil && !fits(fence, @protocol(MTLFence))) return wrong_object("fence", "MTLFence");
  switch (source.kind) {
    case MARLIN_NATIVE_NONE: {
      id<MTLCommandQueue> queue = [shared->device newCommandQueue];
      if (queue == nil) return Status::error(MARLIN_E_MEMORY, "no command queue could be made");
      queue.label = @"metal-marlin";
      return std::unique_ptr<device::Stream>(
          std::make_unique<MetalStream>(std::move(shared), source.trace, queue));
    }
    case MARLIN_NATIVE_METAL_QUEUE:
      if (!fits(object, @protocol(MTLCommandQueue)))
        return wrong_object("native", "MTLCommandQueue");
      return std::unique_ptr<device::Stream>(std::make_unique<MetalStream>(
          std::move(shared), source.trace, static_cast<id<MTLCommandQueue>>(object), wait, update));
    case MARLIN_NATIVE_METAL_COMMAND_BUFFER: {
      if (!fits(object, @protocol(MTLCommandBuffer)))
        return wrong_object("native", "MTLCommandBuffer");
      const auto buffer = static_cast<id<MTLCommandBuffer>>(object);
      MARLIN_RETURN_IF_ERROR(check_uncommitted(buffer));
      auto commands = shared->host_commands.of(buffer);
      commands->order(wait, update);
      return std::unique_ptr<device::Stream>(
          std::make_unique<MetalStream>(std::move(shared), source.trace, std::move(commands)));
    }
    case MARLIN_NATIVE_METAL_ENCODER: {
      if (!fits(object, @protocol(MTLComputeCommandEncoder)))
        return wrong_object("native", "MTLComputeCommandEncoder");
      auto commands = std::make_shared<Commands>(static_cast<id<MTLComputeCommandEncoder>>(object));
      return std::unique_ptr<device::Stream>(
          std::make_unique<MetalStream>(std::move(shared), StreamTrace(), std::move(commands)));
    }
    default:
      return Status::error(MARLIN_E_ARGUMENT, "stream: kind %d is none of Metal's",
                           static_cast<int>(source.kind));
  }
}

}  // namespace metal_marlin::metal
