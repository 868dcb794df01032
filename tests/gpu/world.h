// A context of the C ABI over a device of the tests.
#pragma once

#include "abi/support.h"
#include "api/context.h"
#include "backends/gpu/gpu_backend.h"
#include "mock_device.h"
#include "test.h"

namespace device_test {

namespace mm = metal_marlin;

/// Passes for Metal, so that all kinds of streams and memory are let through. The caller destroys it.
inline marlin_context* gpu_context(std::shared_ptr<dv::Device> device, const mm::gpu::GpuOptions& options,
                                   mm::BackendOptions backend_options = {}) {
  backend_options.threads = 1;
  auto backend = mm::gpu::make_gpu_backend(std::move(device), backend_options, options);
  if (!backend.ok()) return nullptr;
  return new marlin_context(MARLIN_BACKEND_METAL, backend.take(), backend_options);
}

/// An idle device behind a mock, and a context on it whose kernels nobody probes.
struct World {
  explicit World(mm::gpu::GpuOptions options = {.probe = false}, mm::BackendOptions backend = {}) {
    context = mm::context(gpu_context(mock, options, backend));
  }
  Record record;
  FaultPlan faults;
  std::shared_ptr<IdleDevice> device = std::make_shared<IdleDevice>(record);
  std::shared_ptr<testing::NiceMock<MockDevice>> mock = std::make_shared<testing::NiceMock<MockDevice>>(device, faults);
  mm::context context;
};

/// A matrix in a marlin_buffer of its own.
struct Matrix {
  Matrix(const mm::context& context, int64_t rows, int64_t cols, marlin_dtype dtype, int64_t stride = 0) {
    const uint64_t element = dtype == MARLIN_F32 || dtype == MARLIN_I32 ? 4 : 2;
    const int64_t real = stride != 0 ? stride : cols;
    auto err = mm::make<marlin_error>();
    marlin_buffer* made = nullptr;
    EXPECT_EQ(marlin_buffer_create(context.get(), static_cast<uint64_t>(rows * real) * element + 16, &made, &err), MARLIN_OK)
        << err.message;
    buffer = mm::buffer(made);
    view.data = made;
    view.rows = rows;
    view.cols = cols;
    view.row_stride = stride;
    view.dtype = dtype;
    view.memory = MARLIN_MEM_BUFFER;
  }
  mm::buffer buffer;
  marlin_matrix view{};
};

/// A product of operands in marlin_buffers.
struct Product {
  Product(const World& world, int64_t m, int64_t n = 64, int64_t k = 64)
      : w(abi_test::quantized(world.context, n, k)), a(world.context, m, k, MARLIN_F16), c(world.context, m, n, MARLIN_F32) {
    desc = mm::make<marlin_gemm_desc>();
    desc.weights = w.get();
    desc.a = a.view;
    desc.c = c.view;
  }
  mm::weights w;
  Matrix a, c;
  marlin_gemm_desc desc;
};

}  // namespace device_test
