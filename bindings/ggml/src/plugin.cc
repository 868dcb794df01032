// What ggml finds in this library: ggml_backend_score and ggml_backend_init, with one device whose
// buffers pack weights.
#include <metal_marlin/metal_marlin.hpp>

#include <cstdio>
#include <cstring>
#include <memory>
#include <new>

#include "gpu.h"
#include "log.h"
#include "packed_buffer.h"
#include "products.h"

namespace marlin_ggml {
namespace {

constexpr const char* kName = "METAL-MARLIN";

/// The host's ggml, loaded from anywhere, has to be the one whose headers this was compiled with.
bool is_our_ggml() {
  int major = -1, minor = -1;
  if (std::sscanf(ggml_version(), "%d.%d", &major, &minor) != 2 || major != MARLIN_GGML_MAJOR ||
      minor != MARLIN_GGML_MINOR) {
    log(GGML_LOG_LEVEL_WARN, "built for ggml %d.%d, found ggml %s: not used", MARLIN_GGML_MAJOR,
        MARLIN_GGML_MINOR, ggml_version());
    return false;
  }
  for (const BlockType& block : kBlockTypes) {
    if (ggml_blck_size(block.type) == block.elements && ggml_type_size(block.type) == block.bytes)
      continue;
    log(GGML_LOG_LEVEL_WARN,
        "expected blocks of %d elements in %d bytes for type %d, found %d in %d: not used",
        static_cast<int>(block.elements), static_cast<int>(block.bytes),
        static_cast<int>(block.type), static_cast<int>(ggml_blck_size(block.type)),
        static_cast<int>(ggml_type_size(block.type)));
    return false;
  }
  // ggml adds a header of 32 bytes to each.
  if (ggml_tensor_overhead() != sizeof(ggml_tensor) + 32 ||
      std::strcmp(ggml_op_name(GGML_OP_MUL_MAT), "MUL_MAT") != 0 ||
      std::strcmp(ggml_op_name(GGML_OP_MUL_MAT_ID), "MUL_MAT_ID") != 0) {
    log(GGML_LOG_LEVEL_WARN, "ggml's tensors or operations are not those of its headers: not used");
    return false;
  }
  return true;
}

// --- a backend: a stream of the context
// ----------------------------------------------------------------------------------

struct Backend {
  ggml_backend interface{};
  std::unique_ptr<marlin_stream, void (*)(marlin_stream*)> stream;
  Products products;
  explicit Backend(marlin_stream* s) : stream(s, marlin_stream_destroy), products(s) {}
};

ggml_status compute_graph(ggml_backend_t backend, ggml_cgraph* graph) {
  Products& products = static_cast<Backend*>(backend->context)->products;
  try {
    for (int i = 0; i < ggml_graph_n_nodes(graph); ++i) {
      const ggml_tensor& node = *ggml_graph_node(graph, i);
      // The others that supports_op lets through are views: nothing is to be done for them.
      if ((node.op != GGML_OP_MUL_MAT && node.op != GGML_OP_MUL_MAT_ID) || ggml_is_empty(&node) ||
          (node.flags & GGML_TENSOR_FLAG_COMPUTE) == 0)
        continue;
      const ggml_status status = products.compute(node);
      if (status != GGML_STATUS_SUCCESS) return status;
    }
  } catch (const std::bad_alloc&) {
    log(GGML_LOG_LEVEL_ERROR, "no memory for activations");
    return GGML_STATUS_ALLOC_FAILED;
  }
  return GGML_STATUS_SUCCESS;
}

// --- the device, its buffers and its registry: one of each, as long as the library is loaded
// ---------------------------------

struct Plugin {
  marlin_context* context = nullptr;
  ggml_backend_reg reg{};
  ggml_backend_device device{};
  ggml_backend_buffer_type buffers{};
  marlin_device_info info{};

  Plugin();
  Plugin(const Plugin&) = delete;
  ~Plugin() { marlin_context_destroy(context); }
};

Plugin& plugin() {
  static Plugin the_one;
  return the_one;
}

ggml_backend_t init_backend(ggml_backend_dev_t device, const char*) {
  static uint8_t guid[16] = {'m', 'e', 't', 'a', 'l', '-', 'm', 'a',
                             'r', 'l', 'i', 'n', '-', 'c', 'p', 'u'};
  auto error = metal_marlin::make<marlin_error>();
  marlin_stream* stream = nullptr;
  if (marlin_stream_create(plugin().context, nullptr, &stream, &error) != MARLIN_OK) {
    log(GGML_LOG_LEVEL_ERROR, "%s", error.message);
    return nullptr;
  }
  auto* backend = new (std::nothrow) Backend(stream);
  if (backend == nullptr) {
    marlin_stream_destroy(stream);
    return nullptr;
  }
  ggml_backend& interface = backend->interface;
  interface.guid = &guid;
  interface.get_name = [](ggml_backend_t) { return kName; };
  interface.free = [](ggml_backend_t b) { delete static_cast<Backend*>(b->context); };
  interface.graph_compute = compute_graph;
  interface.device = device;
  interface.context = backend;
  return &interface;
}

ggml_backend_buffer_t alloc_buffer(ggml_backend_buffer_type_t buft, size_t size) {
  auto buffer = PackedBuffer::create(plugin().context, size);
  if (buffer != nullptr)
    return ggml_backend_buffer_init(buft, kBufferFunctions, buffer.release(), size);
  log(GGML_LOG_LEVEL_ERROR, "no memory for a buffer of %zu bytes", size);
  return nullptr;
}

void get_props(ggml_backend_dev_t, ggml_backend_dev_props* props) {
  *props = {};
  props->name = kName;
  props->description = plugin().info.name;
  props->type = GGML_BACKEND_DEVICE_TYPE_ACCEL;
}

bool supports_op(ggml_backend_dev_t, const ggml_tensor* op) {
  switch (op->op) {
    case GGML_OP_NONE:
    case GGML_OP_VIEW:
    case GGML_OP_RESHAPE:
    case GGML_OP_PERMUTE:
    case GGML_OP_TRANSPOSE:
      return true;
    default:
      return is_product(*op, &plugin().buffers);
  }
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
  desc.log = [](void*, int32_t level, const char* message) {
    log(level == 1   ? GGML_LOG_LEVEL_ERROR
        : level == 2 ? GGML_LOG_LEVEL_WARN
                     : GGML_LOG_LEVEL_INFO,
        "%s", message);
  };
  if (marlin_context_create(&desc, &context, &error) != MARLIN_OK)
    log(GGML_LOG_LEVEL_ERROR, "%s", error.message);

  reg.api_version = kGgmlApiVersion;
  reg.get_name = [](ggml_backend_reg_t) { return kName; };
  reg.get_device_count = [](ggml_backend_reg_t) { return size_t{1}; };
  reg.get_device = [](ggml_backend_reg_t, size_t) { return &plugin().device; };

  device.get_name = [](ggml_backend_dev_t) { return kName; };
  device.get_description = [](ggml_backend_dev_t) -> const char* { return plugin().info.name; };
  device.get_memory = [](ggml_backend_dev_t, size_t* free, size_t* total) {
    *free = *total = 0;
  };  // the host's, as of BLAS
  device.get_type = [](ggml_backend_dev_t) { return GGML_BACKEND_DEVICE_TYPE_ACCEL; };
  device.get_props = get_props;
  device.init_backend = init_backend;
  device.get_buffer_type = [](ggml_backend_dev_t) { return &plugin().buffers; };
  device.supports_op = supports_op;
  device.supports_buft = [](ggml_backend_dev_t, ggml_backend_buffer_type_t buft) {
    return buft == &plugin().buffers || ggml_backend_buft_is_host(buft);
  };
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
  return marlin_ggml::is_our_ggml() ? 1 : 0;
}

extern "C" __attribute__((visibility("default"))) ggml_backend_reg_t ggml_backend_init(void) {
  using namespace marlin_ggml;
  return is_our_ggml() && plugin().context != nullptr ? &plugin().reg : nullptr;
}
