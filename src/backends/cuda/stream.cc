// Streams. Work runs as soon as it is recorded, in order, so that barriers need nothing: a host's
// stream may then be captured into a graph. No call but wait() blocks.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "backends/cuda/objects.h"
#include "backends/cuda/traced_launches.h"

namespace metal_marlin::cuda {
namespace {

/// blockIdx.y goes no further.
constexpr uint32_t kMostGroupsY = 65535, kMostGroupsZ = 65535;
/// A stream that is never waited for gives back buffers when it has kept this many.
constexpr size_t kManyBuffers = 64;

/// The events of a stream. Those of a timed stream have timestamps, which cost the device more than
/// events without; other streams have no `begin`.
struct Events {
  EventHandle begin = nullptr, done = nullptr;

  static Result<Events> create(const Driver& driver, bool timed) {
    Events made;
    const unsigned kind = timed ? kTiming : kNoTiming;
    MARLIN_RETURN_IF_ERROR(driver.check(driver.create_event(&made.done, kind), "cuEventCreate"));
    if (!timed) return made;
    const Status s = driver.check(driver.create_event(&made.begin, kind), "cuEventCreate");
    if (s.ok()) return made;
    made.destroy(driver);
    return s;
  }
  void destroy(const Driver& driver) const {
    for (const EventHandle event : {begin, done})
      if (event != nullptr) static_cast<void>(driver.destroy_event(event));
  }
};

class CudaStream final : public device::Stream {
 public:
  CudaStream(std::shared_ptr<Shared> shared, StreamHandle handle, const Events& events, bool own,
             StreamTrace trace)
      : shared_(std::move(shared)),
        handle_(handle),
        events_(events),
        own_(own),
        launches_(std::make_unique<TracedLaunches>(driver(), std::move(trace))) {}

  ~CudaStream() override {
    const Current current(*shared_->context);
    // Work that is in a graph of the host keeps what the host keeps.
    if (!capturing()) {
      rotate();
      launches_->tell();
    }
    launches_ = nullptr;
    shared_->keep(std::move(kept_));
    events_.destroy(driver());
    if (own_) static_cast<void>(driver().destroy_stream(handle_));
  }
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  Status dispatch(const device::Dispatch& dispatch) override {
    const Current current(*shared_->context);
    MARLIN_RETURN_IF_ERROR(current.status());
    const auto& kernel = static_cast<const CudaKernel&>(*dispatch.kernel);
    CudaParameters parameters{};
    std::copy(kernel.constants().begin(), kernel.constants().end(), parameters.constants);
    for (const device::Argument& argument : dispatch.arguments) {
      if (argument.buffer == nullptr) {
        if (argument.value.size() > kCudaArgumentBytes)
          return Status::error(MARLIN_E_INTERNAL, "%zu bytes of arguments, expected up to %d",
                               argument.value.size(), kCudaArgumentBytes);
        std::memcpy(parameters.arguments, argument.value.data(), argument.value.size());
      } else if (argument.index < kCudaBuffers) {
        parameters.buffers[argument.index] = argument.buffer->address() + argument.offset;
        use(argument.buffer);
      } else {
        return Status::error(MARLIN_E_INTERNAL, "buffer %u, expected less than %d", argument.index,
                             kCudaBuffers);
      }
    }
    MARLIN_RETURN_IF_ERROR(map_activations(kernel, parameters));
    if (dispatch.groups.z > kMostGroupsZ)
      return Status::error(MARLIN_E_UNSUPPORTED, "%u groups along z, the device takes %u",
                           dispatch.groups.z, kMostGroupsZ);
    const device::Size3 groups = dispatch.groups, threads = dispatch.threads;
    const bool traced = *launches_ && !capturing();
    if (traced) launches_->before(handle_);
    LaunchAttribute overlaps{.id = kOverlapsPrevious, .value = 1};
    for (uint32_t y = 0; y < groups.y; y += kMostGroupsY) {
      parameters.first_row_of_groups = y;
      const LaunchConfig config{.grid = {groups.x, std::min(groups.y - y, kMostGroupsY), groups.z},
                                .threads = {threads.x, threads.y, threads.z},
                                .shared_bytes = kernel.rules().shared_bytes,
                                .stream = handle_,
                                .attributes = &overlaps,
                                .attribute_count = kernel.rules().overlaps ? 1u : 0u};
      void* pointers[] = {&parameters};
      MARLIN_RETURN_IF_ERROR(start_clock());
      MARLIN_RETURN_IF_ERROR(keep(driver().check(
          driver().launch(&config, kernel.function(), pointers, nullptr), "cuLaunchKernelEx")));
    }
    if (traced) launches_->after(handle_, dispatch.what);
    return {};
  }

  Status copy(const device::BufferRef& from, uint64_t from_offset, const device::BufferRef& to,
              uint64_t to_offset, uint64_t bytes) override {
    const Current current(*shared_->context);
    MARLIN_RETURN_IF_ERROR(current.status());
    use(from);
    use(to);
    MARLIN_RETURN_IF_ERROR(start_clock());
    return keep(driver().check(
        driver().copy(to->address() + to_offset, from->address() + from_offset, bytes, handle_),
        "cuMemcpyAsync"));
  }

  Status fill(const device::BufferRef& to, uint64_t offset, uint64_t bytes,
              uint8_t value) override {
    const Current current(*shared_->context);
    MARLIN_RETURN_IF_ERROR(current.status());
    use(to);
    return keep(driver().check(driver().fill(to->address() + offset, value, bytes, handle_),
                               "cuMemsetD8Async"));
  }

  Status barrier() override { return {}; }

  Status commit() override {
    if (used_.size() < kManyBuffers && !*launches_) return {};
    const Current current(*shared_->context);
    MARLIN_RETURN_IF_ERROR(current.status());
    if (capturing()) return {};
    launches_->tell();
    if (used_.size() < kManyBuffers) return {};
    rotate();
    const auto running = std::find_if(kept_.begin(), kept_.end(), [&](const Kept& one) {
      return driver().query_event(one.event) == kNotReady;
    });
    for (auto one = kept_.begin(); one != running; ++one)
      static_cast<void>(driver().destroy_event(one->event));
    kept_.erase(kept_.begin(), running);
    return {};
  }

  Status wait(uint64_t timeout_ns) override {
    const Current current(*shared_->context);
    MARLIN_RETURN_IF_ERROR(current.status());
    MARLIN_RETURN_IF_ERROR(check_waitable());
    MARLIN_RETURN_IF_ERROR(
        keep(driver().check(driver().record_event(events_.done, handle_), "cuEventRecord")));
    MARLIN_RETURN_IF_ERROR(keep(wait_for_done(timeout_ns)));
    stop_clock();
    launches_->tell();
    used_.clear();
    for (const Kept& one : kept_) static_cast<void>(driver().destroy_event(one.event));
    kept_.clear();
    return failure_;
  }

  // A function that cuLaunchHostFunc takes is not called after an error, and again and again in a
  // graph.
  Status notify(void (*done)(void* user, marlin_status status), void* user) override {
    const Current current(*shared_->context);
    MARLIN_RETURN_IF_ERROR(current.status());
    MARLIN_RETURN_IF_ERROR(check_waitable());
    auto waiting = std::make_unique<Waiting>(Waiting{done, user});
    MARLIN_RETURN_IF_ERROR(keep(driver().check(
        driver().add_callback(handle_, Waiting::end, waiting.get(), 0), "cuStreamAddCallback")));
    static_cast<void>(waiting.release());  // end() has it now, or had it
    return {};
  }

  Status failure() const override {
    if (!failure_.ok()) return failure_;
    const Current current(*shared_->context);
    MARLIN_RETURN_IF_ERROR(current.status());
    if (capturing()) return {};
    const DriverError error = driver().query_stream(handle_);
    if (error != kNotReady) failure_ = driver().check(error, "cuStreamQuery");
    return failure_;
  }

  double busy_seconds() const override { return busy_; }

  bool captured() const override {
    const Current current(*shared_->context);
    return capturing();
  }

 private:
  /// Who is told that the work has ended.
  struct Waiting {
    void (*done)(void* user, marlin_status status);
    void* user;

    static void end(StreamHandle, DriverError error, void* self) {
      const std::unique_ptr<Waiting> waiting(static_cast<Waiting*>(self));
      waiting->done(waiting->user, error == kSuccess ? MARLIN_OK : MARLIN_E_DEVICE);
    }
  };

  const Driver& driver() const { return shared_->context->driver(); }

  Status check_waitable() const {
    if (!capturing()) return {};
    return Status::error(MARLIN_E_ARGUMENT,
                         "the stream is being captured; the host launches its graph and waits");
  }

  /// The boxes of A that the copy engine brings: 64 columns, or 128 of INT8, in rows of 128 bytes
  /// whose pieces of 16 are swizzled. What lies outside of A becomes 0.
  Status map_activations(const CudaKernel& kernel, CudaParameters& parameters) const {
    if (kernel.rules().box_rows == 0 || parameters.constants[MARLIN_CONSTANT_ALIGNED] == 0)
      return {};
    ProductArgs args;
    std::memcpy(&args, parameters.arguments, sizeof args);
    const uint64_t size[] = {static_cast<uint64_t>(args.k), static_cast<uint64_t>(args.m)};
    const bool bytes = parameters.constants[MARLIN_CONSTANT_QUANTIZED] != 0;
    const uint64_t row_bytes = static_cast<uint64_t>(args.lda) * (bytes ? 1 : 2);
    const uint32_t box[] = {uint32_t{kMmaSlots} * (bytes ? 2 : 1), kernel.rules().box_rows};
    const uint32_t step[] = {1, 1};
    void* const a = reinterpret_cast<void*>(parameters.buffers[MARLIN_BUFFER_A]);
    return driver().check(driver().encode_tensor_map(
                              parameters.tensor_map, bytes ? kElementsOf8Bits : kElementsOf16Bits,
                              2, a, size, &row_bytes, box, step, 0, kSwizzle128, kPromoteTo256, 0),
                          "cuTensorMapEncodeTiled");
  }

  /// Queries and synchronization would end the capture of a graph.
  bool capturing() const {
    int status = 0;
    return driver().is_capturing(handle_, &status) != kSuccess || status != 0;
  }

  Status keep(const Status& status) const {
    if (!status.ok() && status.code() != MARLIN_E_TIMEOUT && failure_.ok()) failure_ = status;
    return status;
  }

  void use(const device::BufferRef& buffer) {
    if (static_cast<const CudaBuffer&>(*buffer).is_hosts()) return;
    if (std::find(used_.begin(), used_.end(), buffer) == used_.end()) used_.push_back(buffer);
  }

  /// A fill starts no clock, because those of prepare() may run long before the product.
  Status start_clock() {
    if (events_.begin == nullptr || clock_runs_) return {};
    clock_runs_ = true;
    return keep(driver().check(driver().record_event(events_.begin, handle_), "cuEventRecord"));
  }

  void stop_clock() {
    float ms = 0;
    if (std::exchange(clock_runs_, false) &&
        driver().elapsed_ms(&ms, events_.begin, events_.done) != kSuccess)
      ms = 0;  // unknown
    busy_ = double{ms} / 1000;
  }

  /// Puts the buffers that were used so far behind an event. Without an event they stay.
  void rotate() {
    if (used_.empty()) return;
    Kept kept;
    if (driver().create_event(&kept.event, kNoTiming) != kSuccess) return;
    if (driver().record_event(kept.event, handle_) != kSuccess) {
      static_cast<void>(driver().destroy_event(kept.event));
      return;
    }
    kept.buffers = std::exchange(used_, {});
    kept_.push_back(std::move(kept));
  }

  Status wait_for_done(uint64_t timeout_ns) const {
    if (timeout_ns == UINT64_MAX)
      return driver().check(driver().wait_for_event(events_.done), "cuEventSynchronize");
    using Clock = std::chrono::steady_clock;
    constexpr uint64_t kLongest = uint64_t{1} << 60;  // 36 years; more would overflow the clock
    const auto end = Clock::now() + std::chrono::nanoseconds(std::min(timeout_ns, kLongest));
    auto pause = std::chrono::microseconds(1);
    for (;;) {
      const DriverError error = driver().query_event(events_.done);
      if (error != kNotReady) return driver().check(error, "cuEventQuery");
      const auto now = Clock::now();
      if (now >= end) return Status::error(MARLIN_E_TIMEOUT, "the stream's work is not done");
      std::this_thread::sleep_for(std::min<Clock::duration>(pause, end - now));
      pause = std::min(2 * pause, std::chrono::microseconds(1000));
    }
  }

  const std::shared_ptr<Shared> shared_;
  const StreamHandle handle_;
  const Events events_;
  const bool own_;
  std::unique_ptr<TracedLaunches> launches_;
  bool clock_runs_ = false;
  double busy_ = 0;
  std::vector<device::BufferRef> used_;  // by work that no event follows yet
  std::vector<Kept> kept_;               // oldest first
  mutable Status failure_;
};

}  // namespace

Result<std::unique_ptr<device::Stream>> create_stream(std::shared_ptr<Shared> shared,
                                                      const device::StreamSource& source) {
  const Current current(*shared->context);
  MARLIN_RETURN_IF_ERROR(current.status());
  const Driver& driver = shared->context->driver();
  auto handle = static_cast<StreamHandle>(source.native);
  const bool own = source.kind == MARLIN_NATIVE_NONE;
  if (own) {
    MARLIN_RETURN_IF_ERROR(
        driver.check(driver.create_stream(&handle, kNonBlocking), "cuStreamCreate"));
  } else if (source.kind != MARLIN_NATIVE_CUDA_STREAM) {
    return Status::error(MARLIN_E_ARGUMENT, "stream kind is %d, expected %d (a cudaStream_t)",
                         source.kind, MARLIN_NATIVE_CUDA_STREAM);
  } else if (handle != nullptr) {
    ContextHandle context = nullptr;
    MARLIN_RETURN_IF_ERROR(driver.check(driver.stream_context(handle, &context), "cuStreamGetCtx"));
    if (context != shared->context->handle())
      return Status::error(MARLIN_E_ARGUMENT,
                           "the stream belongs to another CUcontext than the marlin_context");
  }
  // What is recorded on a host's stream may be captured, and then has no time of its own.
  const auto events = Events::create(driver, own && source.timed);
  if (!events.ok()) {
    if (own) static_cast<void>(driver.destroy_stream(handle));
    return events.status();
  }
  return std::unique_ptr<device::Stream>(
      std::make_unique<CudaStream>(std::move(shared), handle, events.value(), own, source.trace));
}

}  // namespace metal_marlin::cuda
