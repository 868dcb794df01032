// Packed containers on NVIDIA GPUs, over the driver of the tests: uploaded as they are, by one stream.
#include <algorithm>

#include "container/container_file.h"
#include "context_on_fake_driver.h"

namespace cuda_container_tests {
namespace {

using container_test::Folder;
namespace mm = metal_marlin;

class Uploads : public cuda_test::CudaContext {
 protected:
  int64_t calls(std::string_view function) const {
    return std::count_if(driver->calls.begin(), driver->calls.end(),
                         [&](const std::string& call) { return call.starts_with(function); });
  }
};

TEST_F(Uploads, EveryLayerByOneStreamAndOneCopyEach) {
  const Folder folder;
  auto desc = mm::make<marlin_save_desc>();
  const mm::checkpoint source(container_test::data("gptq-v1-sym-g128"));
  mm::save(context, source, folder / "of_context.marlin");
  desc.backend = MARLIN_BACKEND_CUDA;
  mm::save(mm::context(MARLIN_BACKEND_CPU), source, folder / "f.marlin", desc);
  EXPECT_EQ(container_test::read(folder / "f.marlin"), container_test::read(folder / "of_context.marlin"));
  EXPECT_EQ(calls("cuMemAlloc"), 0);  // packing for the device took nothing of it
  const mm::checkpoint packed(folder / "f.marlin");
  const auto layers = packed.layers();
  ASSERT_GE(layers.size(), 1u);
  std::vector<mm::weights> all;
  for (int turn = 0; turn < 3; ++turn)
    for (const marlin_layer_info& layer : layers) all.push_back(mm::load(context, packed, layer.name));
  const auto loads = static_cast<int64_t>(all.size());
  EXPECT_EQ(calls("cuStreamCreate"), 1);
  EXPECT_EQ(calls("cuMemcpy"), loads);
  EXPECT_EQ(calls("cuMemAlloc"), loads);
  EXPECT_EQ(calls("cuMemHostAlloc"), 1);  // the pinned memory is kept
  EXPECT_EQ(driver->live_registered, 0);
  EXPECT_TRUE(driver->launches.empty());
  fail("cuMemcpyAsync", 700);
  EXPECT_ERROR(MARLIN_E_DEVICE, "700", mm::load(context, packed, layers[0].name));
  mm::load(context, packed, layers[0].name);
}

}  // namespace
}  // namespace cuda_container_tests
