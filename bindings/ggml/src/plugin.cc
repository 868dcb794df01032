// What ggml finds in this library: ggml_backend_score and ggml_backend_init, with one device whose
// buffers pack weights.
#include <metal_marlin/metal_marlin.hpp>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

#include "backend.h"
#include "gpu.h"
#include "log.h"
#include "memory.h"
#include "packed_buffer.h"
#include "version.h"

namespace marlin_ggml {
namespace {

constexpr const char* kName = "METAL-MARLIN";
/// What llama.cpp calls a device with memory of the host, to which it gives whole layers. To one
/// that is an accelerator of the CPU (ACCEL), it gives weights, but the norms of the same layers to
/// the CPU, and it turns flash attention off.
constexpr enum ggml_backend_dev_type kType = GGML_BACKEND_DEVICE_TYPE_IGPU;

// --- the device, its buffers and its registry: one of each, as long as the library is loaded
// ---------------------------------

struct Plugin {
  marlin_context* context = nullptr;
  ggml_backend_reg reg{};
  ggml_backend_device device{};
  ggml_backend_buffer_type buffers{};
  marlin_device_info info{};
  marlin_compute compute = kUsualCompute;  // of backends to come

  Plugin();
  Plugin(const Plugin&) = delete;
  ~Plugin() { marlin_context_destroy(context); }
};

Plugin& plugin() {
  static Plugin the_one;
  return the_one;
}

Backend& backend_of(ggml_backend_t backend) { return *static_cast<Backend*>(backend->context); }

ggml_backend_t init_backend(ggml_backend_dev_t device, const char*) {
  static uint8_t guid[16] = {'m', 'e', 't', 'a', 'l', '-', 'm', 'a',
                             'r', 'l', 'i', 'n', '-', 'c', 'p', 'u'};
  auto interface = std::make_unique<ggml_backend>();
  auto backend = Backend::create(plugin().context, &plugin().buffers,
                                 static_cast<int>(plugin().info.threads), plugin().compute);
  if (backend == nullptr) return nullptr;
  interface->guid = &guid;
  interface->get_name = [](ggml_backend_t) { return kName; };
  interface->free = [](ggml_backend_t b) {
    delete &backend_of(b);
    delete b;
  };
  interface->graph_compute = [](ggml_backend_t b, ggml_cgraph* graph) {
    return backend_of(b).compute(graph);
  };
  interface->device = device;
  interface->context = backend.release();
  return interface.release();
}

// --- functions that a host finds by name
// ----------------------------------------------------------------------------------

void set_n_threads(ggml_backend_t backend, int threads) {
  backend_of(backend).set_threads(threads);
}

void set_abort_callback(ggml_backend_t backend, ggml_abort_callback callback, void* user) {
  backend_of(backend).set_abort_callback(callback, user);
}

/// False, with a line in the log, for a name that is none.
bool parse_compute(const char* name, marlin_compute& out) {
  if (std::strcmp(name, "exact") == 0) {
    out = MARLIN_COMPUTE_DEFAULT;
  } else if (std::strcmp(name, "int8") == 0) {
    out = MARLIN_COMPUTE_INT8;
  } else {
    log(GGML_LOG_LEVEL_ERROR, "compute: expected \"exact\" or \"int8\", found \"%s\"", name);
    return false;
  }
  return true;
}

void log_compute(marlin_compute compute) {
  log(GGML_LOG_LEVEL_INFO, "%s",
      compute == MARLIN_COMPUTE_INT8
          ? "compute int8: activations are rounded to 8 bits, as ggml's CPU backend rounds them; "
            "GGML_METAL_MARLIN_COMPUTE=exact keeps them"
          : "compute exact: activations stay float32; GGML_METAL_MARLIN_COMPUTE=int8 rounds them "
            "to 8 bits, as ggml's CPU backend does, and is faster");
}

bool set_compute(ggml_backend_t backend, const char* name) {
  marlin_compute compute;
  if (!parse_compute(name, compute)) return false;
  backend_of(backend).set_compute(compute);
  return true;
}

void* proc_address(ggml_backend_reg_t, const char* name) {
  const auto is = [name](const char* other) { return std::strcmp(name, other) == 0; };
  if (is("ggml_backend_set_n_threads")) return reinterpret_cast<void*>(set_n_threads);
  if (is("ggml_backend_set_abort_callback")) return reinterpret_cast<void*>(set_abort_callback);
  if (is("ggml_backend_metal_marlin_set_compute")) return reinterpret_cast<void*>(set_compute);
  return nullptr;
}

ggml_backend_buffer_t alloc_buffer(ggml_backend_buffer_type_t buft, size_t size) {
  auto buffer = PackedBuffer::create(plugin().context, size);
  if (buffer != nullptr)
    return ggml_backend_buffer_init(buft, kBufferFunctions, buffer.release(), size);
  log(GGML_LOG_LEVEL_ERROR, "no memory for a buffer of %zu bytes", size);
  return nullptr;
}

void get_memory(ggml_backend_dev_t, size_t* free, size_t* total) {
  *free = *total = 0;
  if (cpu_device() == nullptr) return;
  ggml_backend_dev_memory(cpu_device(), free, total);
  const HostMemory usable = usable_memory({*free, *total});
  *free = usable.free;
  *total = usable.total;
}

void get_props(ggml_backend_dev_t, ggml_backend_dev_props* props) {
  *props = {};
  props->name = kName;
  props->description = plugin().info.name;
  props->type = kType;
  // Weights are packed from a mapped file, which then leaves the memory of the process. Headers of
  // older versions have no such member.
  [](auto& caps) {
    if constexpr (requires { caps.mmap_support; }) caps.mmap_support = true;
  }(props->caps);
  get_memory(nullptr, &props->memory_free, &props->memory_total);
}

/// Whether a tensor lies in memory of the host that the program gave to another device.
bool is_elsewhere(const ggml_tensor& tensor) {
  const ggml_backend_buffer_t buffer = buffer_of(tensor);
  return buffer != nullptr && ggml_backend_buft_is_host(buffer->buft);
}

/// Whether ggml's scheduler wants an operation where its weights or its result are, and they are
/// elsewhere: a layer that a program leaves on the CPU stays there whole.
bool belongs_elsewhere(const ggml_tensor& op) {
  if (is_elsewhere(op)) return true;
  if (op.op == GGML_OP_ROPE || op.op == GGML_OP_FLASH_ATTN_EXT) return false;  // small weights
  return std::ranges::any_of(op.src, [](const ggml_tensor* source) {
    return source != nullptr && is_elsewhere(*source) &&
           buffer_of(*source)->usage == GGML_BACKEND_BUFFER_USAGE_WEIGHTS;
  });
}

/// Products by packed weights are the library's. ggml's CPU backend computes all else inside of
/// this one, so that all layers of a model are one piece of its graph.
bool supports_op(ggml_backend_dev_t, const ggml_tensor* op) {
  if (FileRows::takes(*op)) return true;
  return !belongs_elsewhere(*op) &&
         (is_product(*op, &plugin().buffers) ||
          (cpu_device() != nullptr && ggml_backend_dev_supports_op(cpu_device(), op)));
}

/// Operations read memory of the host where it is.
bool supports_buft(ggml_backend_dev_t, ggml_backend_buffer_type_t buft) {
  return buft == &plugin().buffers || ggml_backend_buft_is_host(buft);
}

Plugin::Plugin() {
  info.struct_size = sizeof info;
  for (uint32_t i = 0;
       marlin_device_get(i, &info, nullptr) == MARLIN_OK && info.backend != MARLIN_BACKEND_CPU; ++i)
    if (const std::string why = why_unused(info); !why.empty())
      log(GGML_LOG_LEVEL_INFO, "%s", why.c_str());
  auto error = metal_marlin::make<marlin_error>();
  auto desc = metal_marlin::make<marlin_context_desc>();
  desc.backend = MARLIN_BACKEND_CPU;
  desc.threads = info.threads;
  desc.parallel_for = Team::parallel_for;
  Team::set_width(info.threads);
  desc.log = [](void*, int32_t level, const char* message) {
    log(level == 1   ? GGML_LOG_LEVEL_ERROR
        : level == 2 ? GGML_LOG_LEVEL_WARN
                     : GGML_LOG_LEVEL_INFO,
        "%s", message);
  };
  if (marlin_context_create(&desc, &context, &error) != MARLIN_OK)
    log(GGML_LOG_LEVEL_ERROR, "%s", error.message);
  if (const char* name = std::getenv("GGML_METAL_MARLIN_COMPUTE")) parse_compute(name, compute);
  log_compute(compute);

  reg.api_version = kGgmlApiVersion;
  reg.get_name = [](ggml_backend_reg_t) { return kName; };
  reg.get_device_count = [](ggml_backend_reg_t) { return size_t{1}; };
  reg.get_device = [](ggml_backend_reg_t, size_t) { return &plugin().device; };
  reg.get_proc_address = proc_address;

  device.get_name = [](ggml_backend_dev_t) { return kName; };
  device.get_description = [](ggml_backend_dev_t) -> const char* { return plugin().info.name; };
  device.get_memory = get_memory;
  device.get_type = [](ggml_backend_dev_t) { return kType; };
  device.get_props = get_props;
  device.init_backend = init_backend;
  device.get_buffer_type = [](ggml_backend_dev_t) { return &plugin().buffers; };
  device.supports_op = supports_op;
  device.supports_buft = supports_buft;
  device.reg = &reg;

  // Not host memory to ggml: a host writes into that without a call, and what is packed would be
  // stale.
  buffers.get_name = [](ggml_backend_buffer_type_t) { return kName; };
  buffers.alloc_buffer = alloc_buffer;
  buffers.get_alignment = [](ggml_backend_buffer_type_t) { return kAlignment; };
  buffers.device = &device;
}

}  // namespace
}  // namespace marlin_ggml

extern "C" __attribute__((visibility("default"))) int ggml_backend_score(void) {
  return marlin_ggml::fits_this_ggml() ? 1 : 0;
}

extern "C" __attribute__((visibility("default"))) ggml_backend_reg_t ggml_backend_init(void) {
  using namespace marlin_ggml;
  return fits_this_ggml() && plugin().context != nullptr ? &plugin().reg : nullptr;
}
