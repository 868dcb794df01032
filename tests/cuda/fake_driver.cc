// A driver without a GPU: device memory is the host's, launches are recorded, and any function can be told to fail.
#include "fake_driver.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "backends/cuda/driver.h"

namespace {

using fake_cuda::Memory;
using fake_cuda::State;
using metal_marlin::cuda::ContextHandle;
using metal_marlin::cuda::EventHandle;
using metal_marlin::cuda::FunctionHandle;
using metal_marlin::cuda::kNoTiming;
using metal_marlin::cuda::kOverlapsPrevious;
using metal_marlin::cuda::LaunchConfig;
using metal_marlin::cuda::ModuleHandle;
using metal_marlin::cuda::StreamHandle;

State& state() {
  static State one;
  return one;
}

/// The error that this call returns before it does anything.
int enter(const char* name, bool needs_context) {
  State& s = state();
  s.calls.emplace_back(name);
  if (needs_context && s.current == nullptr) ++s.wrong_context;
  if (s.failing != name || s.skip-- > 0) return 0;
  s.failing.clear();
  return s.error;
}
int done() { return state().late != 0 ? state().late : (state().pending ? 600 : 0); }
/// Behind the handle of an event.
struct Event {
  bool timed = false;
  float recorded_ms = 0;
};
void* handle(uintptr_t number) { return reinterpret_cast<void*>(number); }

}  // namespace

#define ENTER(needs_context) \
  if (const int error = enter(__func__, needs_context); error != 0) return error

extern "C" {

void* fake_cuda_state() { return &state(); }

int cuInit(unsigned) {
  ENTER(false);
  return 0;
}
int cuDriverGetVersion(int* version) {
  ENTER(false);
  *version = state().version;
  return 0;
}
int cuGetErrorName(int error, const char** name) {
  *name = error == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS" : error == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_UNKNOWN";
  return 0;
}
int cuGetErrorString(int, const char** text) {
  *text = "said the fake driver";
  return 0;
}
int cuDeviceGetCount(int* count) {
  ENTER(false);
  *count = state().devices;
  return 0;
}
int cuDeviceGet(int* device, int index) {
  ENTER(false);
  *device = 40 + index;
  return 0;
}
int cuDeviceGetName(char* name, int, int) {
  ENTER(false);
  std::strcpy(name, "Fake GPU");
  return 0;
}
int cuDeviceTotalMem_v2(size_t* bytes, int) {
  ENTER(false);
  *bytes = size_t{80} << 30;
  return 0;
}
int cuDeviceGetAttribute(int* value, int attribute, int) {
  ENTER(false);
  const State& s = state();
  *value = attribute == 75 ? s.major : attribute == 76 ? s.minor : s.multiprocessors;
  return 0;
}
int cuDevicePrimaryCtxRetain(ContextHandle* context, int) {
  ENTER(false);
  ++state().live_contexts;
  *context = static_cast<ContextHandle>(handle(fake_cuda::kPrimary));
  return 0;
}
int cuDevicePrimaryCtxRelease_v2(int) {
  ENTER(false);
  --state().live_contexts;
  return 0;
}
int cuCtxGetDevice(int* device) {
  ENTER(true);
  *device = 40;
  return 0;
}
int cuCtxPushCurrent_v2(ContextHandle context) {
  ENTER(false);
  state().below.push_back(state().current);
  state().current = context;
  return 0;
}
int cuCtxPopCurrent_v2(ContextHandle* context) {
  ENTER(true);
  *context = static_cast<ContextHandle>(state().current);
  state().current = state().below.back();
  state().below.pop_back();
  return 0;
}
int cuMemAlloc_v2(unsigned long long* address, size_t bytes) {
  ENTER(true);
  ++state().live_memory;
  *address = reinterpret_cast<uintptr_t>(std::aligned_alloc(256, (bytes + 255) / 256 * 256));
  state().memory.push_back({.begin = *address, .bytes = bytes, .allocated = true});
  return 0;
}
int cuMemFree_v2(unsigned long long address) {
  ENTER(true);
  --state().live_memory;
  std::erase_if(state().memory, [=](const Memory& m) { return m.begin == address; });
  std::free(handle(address));
  return 0;
}
int cuMemHostAlloc(void** host, size_t bytes, unsigned) {
  ENTER(true);
  ++state().live_pinned;
  *host = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  state().memory.push_back({.begin = reinterpret_cast<uintptr_t>(*host), .bytes = bytes, .type = 1});
  return 0;
}
int cuMemFreeHost(void* host) {
  ENTER(true);
  --state().live_pinned;
  std::erase_if(state().memory, [=](const Memory& m) { return m.begin == reinterpret_cast<uintptr_t>(host); });
  std::free(host);
  return 0;
}
int cuMemHostRegister_v2(void*, size_t, unsigned) {
  ENTER(true);
  ++state().live_registered;
  return 0;
}
int cuMemHostUnregister(void*) {
  ENTER(true);
  --state().live_registered;
  return 0;
}
int cuMemHostGetDevicePointer_v2(unsigned long long* address, void* host, unsigned) {
  ENTER(true);
  *address = reinterpret_cast<uintptr_t>(host);
  return 0;
}
/// Like the driver, it answers with zeros for an address that it does not know.
int cuPointerGetAttributes(unsigned count, int* attributes, void** values, unsigned long long address) {
  ENTER(true);
  const auto& all = state().memory;
  const auto found = std::find_if(all.begin(), all.end(), [=](const Memory& m) { return address - m.begin < m.bytes; });
  const Memory known = found != all.end() ? *found : Memory{.type = 0};
  const auto give = [&](unsigned i, auto value) { std::memcpy(values[i], &value, sizeof value); };
  for (unsigned i = 0; i < count; ++i) switch (attributes[i]) {
      case 2:
        give(i, known.type);
        break;
      case 10:
        give(i, int{known.allocated});
        break;
      case 11:
        give(i, static_cast<unsigned long long>(known.begin));
        break;
      case 12:
        give(i, known.tells ? known.bytes : 0);
        break;
      case 17:
        give(i, handle(known.pooled ? 0x9001 : 0));
        break;
      default:
        return 1;
    }
  return 0;
}
int cuModuleLoadData(ModuleHandle* module, const void* image) {
  ENTER(true);
  ++state().live_modules;
  *module = static_cast<ModuleHandle>(const_cast<void*>(image));
  return 0;
}
int cuModuleUnload(ModuleHandle) {
  ENTER(true);
  --state().live_modules;
  return 0;
}
/// An image is the names of its kernels, each with a blank behind it. A function is the place of its name.
int cuModuleGetFunction(FunctionHandle* function, ModuleHandle module, const char* name) {
  ENTER(true);
  const char* const found = std::strstr(reinterpret_cast<const char*>(module), (std::string(name) + " ").c_str());
  *function = reinterpret_cast<FunctionHandle>(const_cast<char*>(found));
  return found != nullptr ? 0 : 500;
}
int cuFuncGetAttribute(int* value, int attribute, FunctionHandle) {
  ENTER(true);
  const int values[] = {1024, 640, 0, 0, 0, state().compiled_for};
  *value = values[attribute];
  return 0;
}
int cuFuncSetAttribute(FunctionHandle, int, int) {
  ENTER(true);
  return 0;
}
int cuTensorMapEncodeTiled(void* map, int, unsigned, void*, const uint64_t* size, const uint64_t*, const uint32_t* box,
                           const uint32_t*, int, int, int, int) {
  ENTER(true);
  const uint64_t described[] = {size[0], size[1], box[0], box[1]};
  std::memcpy(map, described, sizeof described);
  return 0;
}
int cuLaunchKernelEx(const LaunchConfig* config, FunctionHandle function, void** parameters, void**) {
  ENTER(true);
  const char* const name = reinterpret_cast<const char*>(function);
  fake_cuda::Launch launch;
  launch.kernel.assign(name, std::strchr(name, ' '));
  std::copy_n(config->grid, 3, launch.grid);
  std::copy_n(config->threads, 3, launch.block);
  launch.shared_bytes = config->shared_bytes;
  launch.overlaps = config->attribute_count >= 1 && config->attributes->id == kOverlapsPrevious;
  launch.stream = config->stream;
  std::memcpy(&launch.parameters, parameters[0], sizeof launch.parameters);
  state().clock_ms += 1;
  state().launches.push_back(launch);
  return 0;
}
int cuStreamCreate(StreamHandle* stream, unsigned) {
  ENTER(true);
  *stream = static_cast<StreamHandle>(handle(0x57));
  ++state().live_streams;
  return 0;
}
int cuStreamDestroy_v2(StreamHandle) {
  ENTER(true);
  --state().live_streams;
  return 0;
}
int cuStreamGetCtx(StreamHandle stream, ContextHandle* context) {
  ENTER(true);
  const auto owner = stream == handle(0xBAD) ? fake_cuda::kHosts : fake_cuda::kPrimary;
  *context = static_cast<ContextHandle>(handle(owner));
  return 0;
}
int cuStreamIsCapturing(StreamHandle, int* status) {
  ENTER(true);
  *status = state().capturing ? 1 : 0;
  return 0;
}
int cuStreamQuery(StreamHandle) {
  ENTER(true);
  return done();
}
int cuStreamAddCallback(StreamHandle stream, void (*end)(StreamHandle, int, void*), void* user, unsigned) {
  ENTER(true);
  auto call = [=] { end(stream, state().late, user); };
  if (state().pending)
    state().callbacks.push_back(std::move(call));
  else
    call();
  return 0;
}
int cuMemcpyAsync(unsigned long long to, unsigned long long from, size_t bytes, StreamHandle) {
  ENTER(true);
  std::memcpy(handle(to), handle(from), bytes);
  state().clock_ms += 2;
  return 0;
}
int cuMemsetD8Async(unsigned long long to, unsigned char value, size_t bytes, StreamHandle) {
  ENTER(true);
  std::memset(handle(to), value, bytes);
  state().clock_ms += 100;
  return 0;
}
int cuEventCreate(EventHandle* event, unsigned flags) {
  ENTER(true);
  ++state().live_events;
  *event = reinterpret_cast<EventHandle>(new Event{(flags & kNoTiming) == 0});
  return 0;
}
int cuEventDestroy_v2(EventHandle event) {
  ENTER(true);
  --state().live_events;
  delete reinterpret_cast<Event*>(event);
  return 0;
}
int cuEventRecord(EventHandle event, StreamHandle) {
  ENTER(true);
  reinterpret_cast<Event*>(event)->recorded_ms = state().clock_ms;
  return 0;
}
int cuEventElapsedTime(float* ms, EventHandle from, EventHandle to) {
  ENTER(true);
  const Event &first = *reinterpret_cast<Event*>(from), &last = *reinterpret_cast<Event*>(to);
  if (!first.timed || !last.timed) return 400;
  *ms = last.recorded_ms - first.recorded_ms;
  return 0;
}
int cuEventQuery(EventHandle) {
  ENTER(true);
  return done();
}
int cuEventSynchronize(EventHandle) {
  ENTER(true);
  return state().late;
}

}  // extern "C"
