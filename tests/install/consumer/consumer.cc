// Uses the C++ wrapper of the installed headers: quantize, multiply, check a value, catch an error.
#include <cstdio>
#include <metal_marlin/metal_marlin.hpp>
#include <vector>

namespace mm = metal_marlin;

int main() {
  constexpr int n = 3, k = 64;
  std::vector<float> w(n * k), a(k, 0.5f), c(n);
  for (int i = 0; i < n * k; ++i) w[static_cast<size_t>(i)] = i < 2 * k ? 3.0f : -6.0f;  // all of them values of MXFP4

  mm::context context(MARLIN_BACKEND_CPU);
  auto pack = mm::make<marlin_pack_desc>();
  pack.format = MARLIN_FORMAT_MXFP4;
  pack.n = n;
  pack.k = k;
  pack.values = mm::matrix_view(w.data(), n, k);
  const mm::weights weights = mm::pack(context, pack);

  auto product = mm::make<marlin_gemm_desc>();
  product.weights = weights.get();
  product.a = mm::matrix_view(a.data(), 1, k);
  product.c = mm::matrix_view(c.data(), 1, n);
  mm::gemm(product);
  if (c[0] != 96.0f || c[2] != -192.0f) {
    std::fprintf(stderr, "expected 96 and -192, found %g and %g\n", static_cast<double>(c[0]), static_cast<double>(c[2]));
    return 1;
  }
  try {
    product.a.cols = k + 1;
    mm::gemm(product);
  } catch (const mm::error& e) {
    return e.status() == MARLIN_E_SHAPE ? 0 : 1;
  }
  return 1;
}
