#include "timing_device.h"

#include <stdexcept>
#include <type_traits>

namespace timing {
namespace {

constexpr const char* kLibrary = "libcuda.so.1";
constexpr int kRelaxedCapture = 2;  // CU_STREAM_CAPTURE_MODE_RELAXED
constexpr int kWarmUp = 2;          // rounds before those that count

template <class Value>
Value value_of(metal_marlin::Result<Value> result) {
  if (!result.ok()) throw std::runtime_error(result.status().message());
  return result.take();
}

cuda::ContextRef first_context() {
  const auto driver = value_of(cuda::load_driver(kLibrary));
  cuda::DriverDevice device = 0;
  if (const auto status = driver.check(driver.device_get(&device, 0), "cuDeviceGet"); !status.ok())
    throw std::runtime_error(status.message());
  return value_of(cuda::Context::retain(driver, device));
}

MoreDriver load_more() {
  void* const library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw std::runtime_error(std::string("no NVIDIA driver: ") + dlerror());
  MoreDriver more;
#define TIMING_FIND(member, name, parameters)                                               \
  more.member = find_function<std::remove_pointer_t<decltype(more.member)>>(library, name); \
  if (more.member == nullptr) throw std::runtime_error(std::string(kLibrary) + " has no " + name);
  TIMING_DRIVER_FUNCTIONS(TIMING_FIND)
#undef TIMING_FIND
  return more;
}

/// Moments on a device's stream.
class Moments {
 public:
  explicit Moments(const Device& device) : device_(device) {}
  ~Moments() {
    for (cuda::EventHandle event : events_) static_cast<void>(device_.driver().destroy_event(event));
  }
  Moments(const Moments&) = delete;
  Moments& operator=(const Moments&) = delete;

  void add() {
    cuda::EventHandle event = nullptr;
    device_.check(device_.driver().create_event(&event, 0), "cuEventCreate");
    events_.push_back(event);
    device_.check(device_.driver().record_event(event, device_.stream()), "cuEventRecord");
  }
  /// When the stream has passed both.
  double microseconds(size_t from, size_t to) const {
    float milliseconds = 0;
    device_.check(device_.more().elapsed(&milliseconds, events_[from], events_[to]), "cuEventElapsedTime");
    return 1e3 * static_cast<double>(milliseconds);
  }

 private:
  const Device& device_;
  std::vector<cuda::EventHandle> events_;
};

}  // namespace

Device::Device() : more_(load_more()), context_(first_context()), current_(*context_) {
  if (const auto status = current_.status(); !status.ok()) throw std::runtime_error(status.message());
  char name[256] = {};
  int version = 0;
  check(driver().device_name(name, sizeof name - 1, 0), "cuDeviceGetName");
  check(driver().driver_version(&version), "cuDriverGetVersion");
  check(driver().create_stream(&stream_, cuda::kNonBlocking), "cuStreamCreate");
  name_ = name;
  driver_version_ = "CUDA " + std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

Device::~Device() { static_cast<void>(driver().destroy_stream(stream_)); }

void Device::check(cuda::DriverError error, const char* what) const {
  if (const auto status = driver().check(error, what); !status.ok()) throw std::runtime_error(status.message());
}

void Device::upload(DevicePtr to, const void* from, size_t bytes) const {
  check(more_.upload(to, from, bytes, stream_), "cuMemcpyHtoDAsync");
  wait();
}

void Device::download(void* to, DevicePtr from, size_t bytes) const {
  check(more_.download(to, from, bytes, stream_), "cuMemcpyDtoHAsync");
  wait();
}

void Device::copy(DevicePtr to, DevicePtr from, size_t bytes) const {
  check(driver().copy(to, from, bytes, stream_), "cuMemcpyAsync");
}

void Device::fill(DevicePtr to, uint8_t value, size_t bytes) const {
  check(driver().fill(to, value, bytes, stream_), "cuMemsetD8Async");
}

Memory::Memory(const Device& device, size_t bytes) : device_(device) {
  device_.check(device_.driver().allocate(&address_, bytes), "cuMemAlloc");
}

void Graph::begin() const {
  device_.check(device_.more().begin_capture(device_.stream(), kRelaxedCapture), "cuStreamBeginCapture");
}

void Graph::end() {
  GraphHandle graph = nullptr;
  device_.check(device_.more().end_capture(device_.stream(), &graph), "cuStreamEndCapture");
  const cuda::DriverError error = device_.more().instantiate(&ready_, graph, 0);
  static_cast<void>(device_.more().destroy_graph(graph));
  device_.check(error, "cuGraphInstantiate");
}

/// All replays are given to the stream before the first is waited for: the device never waits for the host, so that no time has
/// the launch of its graph in it.
std::vector<std::vector<double>> replay_in_turn(const Device& device, std::span<const Graph* const> graphs, int rounds) {
  Moments moments(device);
  for (int round = 0; round < kWarmUp + rounds; ++round)
    for (const Graph* graph : graphs) {
      moments.add();
      graph->launch();
      moments.add();
    }
  device.wait();
  std::vector<std::vector<double>> times(graphs.size());
  for (size_t round = kWarmUp; round < static_cast<size_t>(kWarmUp + rounds); ++round)
    for (size_t graph = 0; graph < graphs.size(); ++graph) {
      const size_t begin = 2 * (round * graphs.size() + graph);
      times[graph].push_back(moments.microseconds(begin, begin + 1));
    }
  return times;
}

}  // namespace timing
