// What ggml and a backend library hand each other. ggml's headers name these structs and keep their
// members to themselves; the layout is the same from ggml 0.10.0 to 0.25.3, on 64-bit machines.
// `void*` stands for members that are not used here.
#pragma once

#include <ggml-backend.h>
#include <ggml.h>

#include <cstddef>

constexpr int kGgmlApiVersion = 2;

struct ggml_backend_reg {
  int api_version;
  const char* (*get_name)(ggml_backend_reg_t);
  size_t (*get_device_count)(ggml_backend_reg_t);
  ggml_backend_dev_t (*get_device)(ggml_backend_reg_t, size_t index);
  void* (*get_proc_address)(ggml_backend_reg_t, const char* name);
  void* context;
};

struct ggml_backend_device {
  const char* (*get_name)(ggml_backend_dev_t);
  const char* (*get_description)(ggml_backend_dev_t);
  void (*get_memory)(ggml_backend_dev_t, size_t* free, size_t* total);
  enum ggml_backend_dev_type (*get_type)(ggml_backend_dev_t);
  void (*get_props)(ggml_backend_dev_t, ggml_backend_dev_props*);
  ggml_backend_t (*init_backend)(ggml_backend_dev_t, const char* params);
  ggml_backend_buffer_type_t (*get_buffer_type)(ggml_backend_dev_t);
  void *get_host_buffer_type, *buffer_from_host_ptr;
  bool (*supports_op)(ggml_backend_dev_t, const ggml_tensor*);
  bool (*supports_buft)(ggml_backend_dev_t, ggml_backend_buffer_type_t);
  void *offload_op, *event_new, *event_free, *event_synchronize;
  ggml_backend_reg_t reg;
  void* context;
};

struct ggml_backend {
  ggml_guid_t guid;
  const char* (*get_name)(ggml_backend_t);
  void (*free)(ggml_backend_t);
  void *set_tensor_async, *get_tensor_async, *set_tensor_2d_async, *get_tensor_2d_async,
      *cpy_tensor_async, *synchronize;
  void *graph_plan_create, *graph_plan_free, *graph_plan_update, *graph_plan_compute;
  ggml_status (*graph_compute)(ggml_backend_t, ggml_cgraph*);
  void *event_record, *event_wait, *graph_optimize;
  ggml_backend_dev_t device;
  void* context;
};

struct ggml_backend_buffer_type {
  const char* (*get_name)(ggml_backend_buffer_type_t);
  ggml_backend_buffer_t (*alloc_buffer)(ggml_backend_buffer_type_t, size_t size);
  size_t (*get_alignment)(ggml_backend_buffer_type_t);
  void *get_max_size, *get_alloc_size, *is_host;
  ggml_backend_dev_t device;
  void* context;
};

struct BufferFunctions {
  void (*free_buffer)(ggml_backend_buffer_t);
  void* (*get_base)(ggml_backend_buffer_t);
  void* init_tensor;
  void (*memset_tensor)(ggml_backend_buffer_t, ggml_tensor*, uint8_t value, size_t offset,
                        size_t size);
  void (*set_tensor)(ggml_backend_buffer_t, ggml_tensor*, const void* data, size_t offset,
                     size_t size);
  void (*get_tensor)(ggml_backend_buffer_t, const ggml_tensor*, void* data, size_t offset,
                     size_t size);
  void *set_tensor_2d, *get_tensor_2d, *cpy_tensor;
  void (*clear)(ggml_backend_buffer_t, uint8_t value);
  void* reset;
};

struct ggml_backend_buffer {
  BufferFunctions functions;
  ggml_backend_buffer_type_t buft;
  void* context;
  size_t size;
  ggml_backend_buffer_usage usage;
};

/// Exported by libggml-base, in no header. ggml_backend_buffer_free calls free_buffer for `context`
/// and frees the rest itself.
extern "C" ggml_backend_buffer_t ggml_backend_buffer_init(ggml_backend_buffer_type_t buft,
                                                          BufferFunctions functions, void* context,
                                                          size_t size);

static_assert(sizeof(ggml_backend_reg) == 48 && offsetof(ggml_backend_reg, context) == 40);
static_assert(sizeof(ggml_backend_device) == 136 &&
              offsetof(ggml_backend_device, init_backend) == 40 &&
              offsetof(ggml_backend_device, supports_op) == 72 &&
              offsetof(ggml_backend_device, supports_buft) == 80 &&
              offsetof(ggml_backend_device, reg) == 120);
static_assert(sizeof(ggml_backend) == 152 && offsetof(ggml_backend, graph_compute) == 8 + 96 &&
              offsetof(ggml_backend, device) == 136);
static_assert(sizeof(ggml_backend_buffer_type) == 64 &&
              offsetof(ggml_backend_buffer_type, device) == 48);
static_assert(sizeof(BufferFunctions) == 88 && offsetof(BufferFunctions, clear) == 72);
static_assert(sizeof(ggml_backend_buffer) == 120 && offsetof(ggml_backend_buffer, buft) == 88 &&
              offsetof(ggml_backend_buffer, usage) == 112);
