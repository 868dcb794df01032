#include "few_kernels.h"

#include <string>
#include <vector>

#include "backends/metal/metal_device.h"

namespace metal_marlin::metal {

/// The real embedded_shaders(), which CMakeLists.txt compiles under this name.
Shaders every_shader();

namespace {

class FewKernels {
 public:
  FewKernels() {
    const Shaders all = every_shader();
    for (const auto sources : {all.sources, all.tensor_sources})
      for (const std::string_view source : sources) texts_.push_back(kFewKernels + std::string(source));
    views_.assign(texts_.begin(), texts_.end());
    const auto views = std::span<const std::string_view>(views_);
    shaders_.sources = views.first(all.sources.size());
    shaders_.tensor_sources = views.subspan(all.sources.size());
  }
  const Shaders& shaders() const { return shaders_; }

 private:
  std::vector<std::string> texts_;
  std::vector<std::string_view> views_;
  Shaders shaders_;
};

}  // namespace

Shaders embedded_shaders() {
  static const FewKernels few;
  return few.shaders();
}

}  // namespace metal_marlin::metal
