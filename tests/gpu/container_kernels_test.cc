// Real kernels over weights that lie in a mapped file: the values of those that the backend packs, and whatever the directory
// of the file says, no byte outside of a buffer.
#include "container/container_file.h"
#include "container/directory_integers.h"
#include "container/sealed_file.h"
#include "gpu.h"
#include "test.h"

namespace gpu_container_tests {
namespace {

using namespace device_test;
using metal_marlin::ContainerDirectory;

class InFiles : public ::testing::TestWithParam<const char*> {
 protected:
  const container_test::Folder folder_;
  const Gpu gpu_{{}, false};
};
INSTANTIATE_TEST_SUITE_P(Gpu, InFiles,
                         ::testing::Values("gptq-v1-asym-g64-actorder", "mxfp4-gpt-oss-experts", "gguf-experts-q4k",
                                           "nvfp4-modelopt", "bnb-nf4-b64-double", "ct-marlin-24-g128"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST_P(InFiles, HaveTheValuesThatTheBackendPacks) {
  const std::string layer =
      container_test::pack_smallest(mm::context(MARLIN_BACKEND_CPU), GetParam(), folder_ / "f.marlin", MARLIN_BACKEND_METAL);
  const mm::checkpoint source(container_test::data(GetParam())), file(folder_ / "f.marlin");
  const mm::weights found = mm::load(gpu_.context, file, layer);
  const char* const name = layer.c_str();
  const marlin_shard shard = {{0, 0, 0}, {0, 0, mm::info(found).experts}};
  auto load = mm::make<marlin_load_desc>();
  load.layers = &name;
  load.layer_count = 1;
  load.shards = &shard;
  const mm::weights expected = mm::load(gpu_.context, source, load);
  EXPECT_TRUE(container_test::same_bits(container_test::values(expected), container_test::values(found)));
  EXPECT_TRUE(container_test::same_bits(container_test::product(expected), container_test::product(found)));
}

TEST_P(InFiles, ReadNoByteOutsideWhateverTheDirectorySays) {
  container_test::pack_smallest(mm::context(MARLIN_BACKEND_CPU), GetParam(), folder_ / "good.marlin", MARLIN_BACKEND_METAL);
  const std::string good = container_test::read(folder_ / "good.marlin");
  ContainerDirectory directory = container_test::directory_of(good).take();
  EXPECT_EQ(directory.version, 2u);
  const size_t count = container_test::integers_of(directory).size();
  constexpr uint64_t kExtremes[] = {0, 1, 2, 3, 16, 128, 0x100, 0x10000, 0x20000, 0x7fffffff, INT64_MAX, UINT64_MAX};
  int loaded = 0, refused = 0;
  for (size_t field = 0; field < count; ++field)
    for (const uint64_t extreme : kExtremes) {
      SCOPED_TRACE(::testing::Message() << "field " << field << " = " << extreme);
      ContainerDirectory bad = directory;
      container_test::integers_of(bad)[field](extreme);
      container_test::write(folder_ / "bad.marlin", container_test::with_directory(good, bad));
      std::string message;
      const marlin_status status = container_test::status_of(
          [&] {
            const mm::checkpoint file(folder_ / "bad.marlin");
            for (const marlin_layer_info& layer : file.layers()) {
              const mm::weights w = mm::load(gpu_.context, file, layer.name);
              EXPECT_EQ(layer.status, MARLIN_OK);
              std::vector<float> row(static_cast<size_t>(layer.k));
              mm::unpack(w, mm::matrix_view(row.data(), 1, layer.k), layer.n * layer.experts - 1);
              ++loaded;
            }
          },
          &message);
      EXPECT_NE(status, MARLIN_E_DEVICE) << message;
      refused += status != MARLIN_OK;
    }
  EXPECT_GT(loaded, 10);
  EXPECT_GT(refused, 100);
}

}  // namespace
}  // namespace gpu_container_tests
