// The folder of images; libraries of more kernels than one image holds.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <optional>

#include "support.h"

namespace metal_on_cpu {
namespace {

namespace fs = std::filesystem;

constexpr const char* kShader = R"(
#include <metal_stdlib>
using namespace metal;
constant int add [[function_constant(0)]];
template <int N> kernel void times(device const int* x [[buffer(0)]], device int* y [[buffer(1)]], uint i [[thread_position_in_grid]]) {
  y[i] = x[i + (N == 7 ? 1 : 0)] * N + add;
}
#define TIMES(N) template [[host_name("times" #N)]] kernel decltype(times<N>) times<N>;
TIMES(0) TIMES(1) TIMES(2) TIMES(3) TIMES(4) TIMES(5) TIMES(6) TIMES(7) TIMES(8) TIMES(9)
TIMES(10) TIMES(11) TIMES(12) TIMES(13) TIMES(14) TIMES(15) TIMES(16) TIMES(17) TIMES(18) TIMES(19)
)";

class Images : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(::testing::TempDir()) / "metal-on-cpu-images";
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    auto library = Library::from_source(kShader, {}, "times.metal");
    ASSERT_TRUE(library.ok()) << library.message();
    source_ = library.take();
  }
  static Result<Report> run(const Library& library, const std::string& kernel, ConstantValue add, bool checked,
                            std::vector<int>& y) {
    const std::vector<int> x = {1, 2, 3, 4};
    y.assign(4, 0);
    return library.kernel(kernel).constant(0, add).dispatch().buffer(0, x).buffer(1, y).threads(4).check(checked).run();
  }

  fs::path folder_;
  std::optional<Library> source_;
};

TEST_F(Images, ThatAreCutOffInTheFolderAreMadeAnew) {
  CompileOptions options;
  options.cache = (folder_ / "cache").string();
  std::vector<int> y;
  for (const bool cut : {false, true}) {
    for (const auto& entry : fs::directory_iterator(folder_)) {
      if (!entry.is_directory()) continue;
      for (const auto& file : fs::directory_iterator(entry.path())) {
        if (cut) fs::resize_file(file.path(), file.file_size() / 2);
      }
    }
    const auto library = Library::from_source(kShader, options, "times.metal");
    ASSERT_TRUE(library.ok()) << library.message();
    for (const bool checked : {false, true}) {
      const auto r = run(library.value(), "times3", int64_t{5}, checked, y);
      ASSERT_TRUE(r.ok()) << r.message();
      EXPECT_EQ(y, (std::vector<int>{8, 11, 14, 17}));
    }
  }
}

TEST_F(Images, OfALibraryHoldPartsOfItsKernels) {
  std::vector<int> y;
  for (const char* kernel : {"times0", "times7", "times8", "times19"}) {
    const auto r = run(*source_, kernel, int64_t{5}, false, y);
    ASSERT_TRUE(r.ok()) << r.message();
    EXPECT_EQ(y[1], 2 * std::atoi(kernel + 5) + (kernel == std::string("times7") ? 7 : 0) + 5) << kernel;
  }
}

}  // namespace
}  // namespace metal_on_cpu
