// Times products on an NVIDIA GPU, and beside them a kernel that only reads as many bytes. Prints a table. No test: what it
// says depends on the machine.
//
//   metal_marlin_cuda_timing READ_FLOOR.fatbin
//
// Each product has weights of its own, of more than 700 MB in all, in one CUDA graph: the replay's time over the number of
// products, the median of several replays.
#include <dlfcn.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "metal_marlin/metal_marlin.hpp"

namespace {

namespace mm = metal_marlin;

void* driver = nullptr;

[[noreturn]] void die(const std::string& why) {
  std::fprintf(stderr, "%s\n", why.c_str());
  std::exit(1);
}

/// Calls a function of the driver by its name.
template <class... Arguments>
void call(const char* name, Arguments... arguments) {
  auto* const function = reinterpret_cast<int (*)(Arguments...)>(dlsym(driver, name));
  if (function == nullptr) die(std::string("no ") + name);
  if (const int error = function(arguments...); error != 0) die(std::string(name) + ": error " + std::to_string(error));
}

void must(marlin_status status, const marlin_error& err, const char* what) {
  if (status != MARLIN_OK) die(std::string(what) + ": " + err.message);
}

uint64_t device_memory(size_t bytes, uint8_t value) {
  uint64_t at = 0;
  call("cuMemAlloc_v2", &at, bytes);
  call("cuMemsetD8_v2", at, static_cast<unsigned char>(value), bytes);
  return at;
}

/// Microseconds of a replay of what `record` puts on a stream.
template <class Record>
double replay(void* stream, const Record& record) {
  void *graph = nullptr, *ready = nullptr, *begin = nullptr, *end = nullptr;
  call("cuStreamBeginCapture_v2", stream, 2);
  record();
  call("cuStreamEndCapture", stream, &graph);
  call("cuGraphInstantiateWithFlags", &ready, graph, 0ull);
  call("cuEventCreate", &begin, 0u);
  call("cuEventCreate", &end, 0u);
  std::vector<float> times;
  for (int i = 0; i < 14; ++i) {
    call("cuEventRecord", begin, stream);
    call("cuGraphLaunch", ready, stream);
    call("cuEventRecord", end, stream);
    call("cuEventSynchronize", end);
    float ms = 0;
    call("cuEventElapsedTime", &ms, begin, end);
    if (i >= 3) times.push_back(ms);
  }
  call("cuGraphExecDestroy", ready);
  call("cuGraphDestroy", graph);
  std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
  return times[times.size() / 2] * 1e3;
}

struct Shape {
  const char* name;
  marlin_format format;
  uint32_t group;
  marlin_dtype scales;
  int64_t n, k;
};

mm::weights pack(marlin_context* context, const Shape& shape, uint32_t seed) {
  std::mt19937 random(seed);
  const int64_t groups = shape.k / shape.group;
  std::vector<uint8_t> codes(static_cast<size_t>(shape.n * shape.k / 2));
  for (size_t i = 0; i < codes.size(); i += 4) {
    const uint32_t r = random();
    for (size_t b = 0; b < 4; ++b) codes[i + b] = static_cast<uint8_t>(r >> 8 * b);
  }
  const size_t element = shape.scales == MARLIN_F16 ? 2 : 1;
  std::vector<uint8_t> scales(static_cast<size_t>(shape.n * groups) * element);
  for (size_t i = 0; i < scales.size(); ++i)
    scales[i] = element == 1 ? static_cast<uint8_t>(shape.scales == MARLIN_E8M0 ? 118 + random() % 4 : 8 + random() % 40)
                             : static_cast<uint8_t>(i % 2 == 0 ? random() : 0x18 + random() % 4);
  auto desc = mm::make<marlin_pack_desc>();
  desc.format = shape.format;
  desc.group_size = shape.group;
  desc.n = shape.n;
  desc.k = shape.k;
  desc.values.data = codes.data();
  desc.values.rows = shape.n;
  desc.values.cols = shape.k / 2;
  desc.values.dtype = MARLIN_U8;
  desc.scales.data = scales.data();
  desc.scales.rows = shape.n;
  desc.scales.cols = groups;
  desc.scales.dtype = shape.scales;
  auto err = mm::make<marlin_error>();
  marlin_weights* made = nullptr;
  const marlin_pack_desc* const parts[] = {&desc};
  must(marlin_weights_pack(context, parts, 1, 1, &made, &err), err, "marlin_weights_pack");
  return mm::weights(made);
}

void time_shape(marlin_context* context, void* stream, void* floor, const Shape& shape) {
  const uint64_t bytes = static_cast<uint64_t>(shape.n * shape.k) / 2 +
                         static_cast<uint64_t>(shape.n * shape.k / shape.group) * (shape.scales == MARLIN_F16 ? 2 : 1);
  const size_t copies = (720u << 20) / bytes + 1;
  std::vector<mm::weights> weights;
  for (size_t i = 0; i < copies; ++i) weights.push_back(pack(context, shape, static_cast<uint32_t>(i)));
  const uint64_t memory = device_memory(copies * bytes, 0x5a);
  const double floor_us = replay(stream,
                                 [&] {
                                   for (size_t i = 0; i < copies; ++i) {
                                     uint64_t from = memory + i * (bytes / 16 * 16), count = bytes / 16, to = memory;
                                     void* arguments[] = {&from, &count, &to};
                                     call("cuLaunchKernel", floor, 528u, 1u, 1u, 512u, 1u, 1u, 0u, stream,
                                          static_cast<void**>(arguments), static_cast<void**>(nullptr));
                                   }
                                 }) /
                          static_cast<double>(copies);
  call("cuMemFree_v2", memory);
  std::printf("%s N %lld K %lld: %.1f MB each, %zu copies; read-only %.2f us (%.2f TB/s)\n", shape.name,
              static_cast<long long>(shape.n), static_cast<long long>(shape.k), static_cast<double>(bytes) / 1e6, copies,
              floor_us, static_cast<double>(bytes) / floor_us / 1e6);
  for (const marlin_dtype dtype : {MARLIN_BF16, MARLIN_F16})
    for (const int64_t m : {1, 8, 16, 32, 64, 512}) {
      const uint64_t a = device_memory(static_cast<size_t>(m * shape.k) * 2, 0x3c),
                     c = device_memory(static_cast<size_t>(m * shape.n) * 2, 0);
      auto err = mm::make<marlin_error>();
      auto stream_desc = mm::make<marlin_stream_desc>();
      stream_desc.kind = MARLIN_NATIVE_CUDA_STREAM;
      stream_desc.native = stream;
      marlin_stream* made = nullptr;
      must(marlin_stream_create(context, &stream_desc, &made, &err), err, "marlin_stream_create");
      const mm::stream own(made);
      std::vector<marlin_gemm_desc> descs;
      for (const mm::weights& w : weights) {
        auto d = mm::make<marlin_gemm_desc>();
        d.weights = w.get();
        d.a.data = reinterpret_cast<void*>(a);
        d.a.rows = m;
        d.a.cols = shape.k;
        d.c.data = reinterpret_cast<void*>(c);
        d.c.rows = m;
        d.c.cols = shape.n;
        d.a.dtype = d.c.dtype = dtype;
        d.a.memory = d.c.memory = MARLIN_MEM_CUDA;
        descs.push_back(d);
      }
      const marlin_gemm_desc* const one = &descs[0];
      uint64_t scratch = 0;
      must(marlin_prepare(own.get(), &one, 1, m, &scratch, &err), err, "marlin_prepare");
      const auto record = [&] {
        for (const marlin_gemm_desc& d : descs) must(marlin_gemm(own.get(), &d, &err), err, "marlin_gemm");
      };
      record();
      must(marlin_stream_wait(own.get(), UINT64_MAX, &err), err, "marlin_stream_wait");
      const double us = replay(stream, record) / static_cast<double>(copies);
      char text[2048] = {};
      size_t needed = 0;
      must(marlin_explain(one, text, sizeof text, &needed, &err), err, "marlin_explain");
      const std::string kernel = std::string(text).substr(8, std::string(text).find('\n') - 8);
      std::printf("  M %4lld %s: %8.2f us, %.2f of read-only, %6.1f TFLOP/s  %s\n", static_cast<long long>(m),
                  dtype == MARLIN_F16 ? "f16 " : "bf16", us, us / floor_us,
                  2e-6 * static_cast<double>(m * shape.n * shape.k) / us, kernel.c_str());
      std::fflush(stdout);
      call("cuMemFree_v2", a);
      call("cuMemFree_v2", c);
    }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) die("usage: metal_marlin_cuda_timing READ_FLOOR.fatbin");
  driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (driver == nullptr) die(dlerror());
  auto err = mm::make<marlin_error>();
  auto desc = mm::make<marlin_context_desc>();
  desc.backend = MARLIN_BACKEND_CUDA;
  marlin_context* made = nullptr;
  must(marlin_context_create(&desc, &made, &err), err, "marlin_context_create");
  const mm::context context(made);
  void *primary = nullptr, *stream = nullptr, *module = nullptr, *floor = nullptr;
  call("cuDevicePrimaryCtxRetain", &primary, 0);
  call("cuCtxSetCurrent", primary);
  call("cuStreamCreate", &stream, 1u);
  std::ifstream file(argv[1], std::ios::binary);
  const std::vector<char> image{std::istreambuf_iterator<char>(file), {}};
  call("cuModuleLoadData", &module, static_cast<const void*>(image.data()));
  call("cuModuleGetFunction", &floor, module, "read_floor");
  const Shape shapes[] = {{"INT4 g128", MARLIN_INT4, 128, MARLIN_F16, 14336, 4096},
                          {"MXFP4", MARLIN_MXFP4, 32, MARLIN_E8M0, 14336, 4096},
                          {"NVFP4", MARLIN_NVFP4, 16, MARLIN_E4M3, 14336, 4096},
                          {"INT4 g128", MARLIN_INT4, 128, MARLIN_F16, 4096, 4096}};
  for (const Shape& shape : shapes) time_shape(context.get(), stream, floor, shape);
}
