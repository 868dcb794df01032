// METAL_MARLIN_KERNEL where there are two backends: in place of the absent one of Metal is a device that computes nothing.
#include "backends/gpu/gpu_backend.h"
#include "backends/gpu/kernels.h"
#include "backends/metal/metal_backend.h"
#include "idle_device.h"
#include "metal_marlin/metal_marlin.hpp"
#include "test.h"

namespace metal_marlin::metal {

uint32_t device_count() { return 1; }

void describe_device(uint32_t, marlin_device_info& out) { std::snprintf(out.name, sizeof out.name, "idle"); }

bool has_kernel(std::string_view name) { return gpu::product_kernel(gpu::simdgroup_policy(), name) != nullptr; }

Result<std::unique_ptr<Backend>> create_backend(const BackendOptions& options) {
  static device_test::Record record;
  return gpu::make_gpu_backend(std::make_shared<device_test::IdleDevice>(record), options, {.probe = false});
}

}  // namespace metal_marlin::metal

namespace {

namespace mm = metal_marlin;

/// What is said of a product of 20 rows on this backend, in a context made where METAL_MARLIN_KERNEL is `kernel`.
std::string explained(marlin_backend backend, const char* kernel) {
  setenv("METAL_MARLIN_KERNEL", kernel, 1);
  const mm::context context(backend);
  unsetenv("METAL_MARLIN_KERNEL");
  std::vector<float> w(64 * 64, 1.0f);
  auto part = mm::make<marlin_pack_desc>();
  part.format = MARLIN_FORMAT_INT4;
  part.n = part.k = 64;
  part.values = mm::matrix_view(w.data(), 64, 64);
  const mm::weights weights = mm::pack(context, part);
  std::vector<mm::f16> a(20 * 64), c(20 * 64);
  auto product = mm::make<marlin_gemm_desc>();
  product.weights = weights.get();
  product.a = mm::matrix_view(a.data(), 20, 64);
  product.c = mm::matrix_view(c.data(), 20, 64);
  try {
    return mm::explain(product);
  } catch (const mm::error& e) {
    return e.what();
  }
}

TEST(ForcedKernel, ConcernsTheBackendThatHasIt) {
  EXPECT_THAT(explained(MARLIN_BACKEND_METAL, "gemv_u4_f16_m1"), HasSubstr("kernel: gemv_u4_f16_m1\n"));
  EXPECT_THAT(explained(MARLIN_BACKEND_CPU, "gemv_u4_f16_m1"), HasSubstr("kernel: cpu_"));
  EXPECT_THAT(explained(MARLIN_BACKEND_CPU, "cpu_generic_dequant_any_f32"), HasSubstr("kernel: cpu_generic_dequant_any_f32\n"));
  EXPECT_THAT(explained(MARLIN_BACKEND_METAL, "cpu_generic_dequant_any_f32"), HasSubstr("kernel: regdecode_u4_f16_m32"));
  EXPECT_THAT(explained(MARLIN_BACKEND_METAL, ""), HasSubstr("kernel: regdecode_u4_f16_m32"));
}

TEST(ForcedKernel, IsAnErrorOfAllWhenNobodyHasIt) {
  for (const marlin_backend backend : {MARLIN_BACKEND_CPU, MARLIN_BACKEND_METAL})
    EXPECT_THAT(explained(backend, "gemv_u4_f16"), HasSubstr("asks for gemv_u4_f16, which no backend of this library has"));
}

}  // namespace
