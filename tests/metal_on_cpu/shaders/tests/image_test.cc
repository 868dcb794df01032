// The folder of images; libraries of more kernels than one image holds.
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
    auto library = must(Library::from_source(kShader, {}, "times.metal"));
    source_ = std::move(library);
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
    const auto library = must(Library::from_source(kShader, options, "times.metal"));
    for (const bool checked : {false, true}) {
      const auto r = must(run(library, "times3", int64_t{5}, checked, y));
      EXPECT_EQ(y, (std::vector<int>{8, 11, 14, 17}));
    }
  }
}

TEST_F(Images, OfALibraryHoldPartsOfItsKernels) {
  std::vector<int> y;
  for (const char* kernel : {"times0", "times7", "times8", "times19"}) {
    const auto r = must(run(*source_, kernel, int64_t{5}, false, y));
    EXPECT_EQ(y[1], 2 * std::atoi(kernel + 5) + (kernel == std::string("times7") ? 7 : 0) + 5) << kernel;
  }
}

TEST_F(Images, OfLateConstantsServeAllTheirValues) {
  CompileOptions options;
  options.cache = (folder_ / "late").string();
  options.late_constants = true;
  const auto library = must(Library::from_source(
      "constant int given [[function_constant(0)]]; constant float by [[function_constant(1)]];\n"
      "constant int add = is_function_constant_defined(given) ? given : 7;\n"
      "constant bool adds = add != 0;\n"
      "kernel void k(device float* y [[buffer(0)]], device const int* x [[buffer(1), function_constant(adds)]]) {\n"
      "  y[0] = (adds ? *x + add : 100) * by;\n}\n",
      options, "late.metal"));
  const int x = 1;
  float y = 0;
  const auto run = [&](std::optional<int64_t> given, std::optional<double> by, bool has_x) {
    Kernel kernel = library.kernel("k");
    if (given) kernel.constant(0, *given);
    if (by) kernel.constant(1, *by);
    Dispatch dispatch = kernel.dispatch();
    if (has_x) dispatch.buffer(1, &x, sizeof x);
    const auto report = dispatch.output(0, &y, sizeof y).check().run();
    return report ? report.value().text() : report.message();
  };
  EXPECT_EQ(run(-4, 0.5, true), "");
  EXPECT_EQ(y, -1.5f);
  EXPECT_EQ(run({}, 2.0, true), "");
  EXPECT_EQ(y, 16.0f);
  EXPECT_EQ(run(0, 2.0, false), "");
  EXPECT_EQ(y, 200.0f);
  EXPECT_THAT(run(4, 2.0, false), testing::HasSubstr("no buffer is given for 'x'"));
  EXPECT_THAT(run(4, {}, true),
              testing::HasSubstr("late.metal:5: undefined-function-constant: function constant 'by' is read"));
  size_t images = 0;
  for (const auto& file : fs::recursive_directory_iterator(options.cache)) images += file.path().extension() == ".so";
  EXPECT_EQ(images, 1u);
}

}  // namespace
}  // namespace metal_on_cpu
