// The library's own kernels as they are embedded, but fewer instances: each set of constants compiles a whole file.
#pragma once

#include "fixture.h"

namespace metal_marlin::metal {

class FewKernels {
 public:
  FewKernels() {
    const Shaders all = embedded_shaders();
    for (const auto sources : {all.sources, all.tensor_sources})
      for (const std::string_view source : sources) texts_.push_back(std::string(kFewer) + std::string(source));
    views_.assign(texts_.begin(), texts_.end());
    const auto views = std::span<const std::string_view>(views_);
    shaders_.sources = views.first(all.sources.size());
    shaders_.tensor_sources = views.subspan(all.sources.size());
  }
  FewKernels(const FewKernels&) = delete;
  FewKernels& operator=(const FewKernels&) = delete;
  const Shaders& shaders() const { return shaders_; }

 private:
  static constexpr std::string_view kFewer =
      "#define MARLIN_PRODUCTS(X) X(fp4, Fp4, f16, half)\n"
      "#define MARLIN_GEMV_ROWS(X, ...) X(__VA_ARGS__, 1)\n"
      "#define MARLIN_GEMM_TILES(DIRECT, STAGED, ...) DIRECT(__VA_ARGS__, 16)\n";
  std::vector<std::string> texts_;
  std::vector<std::string_view> views_;
  Shaders shaders_;
};

}  // namespace metal_marlin::metal
