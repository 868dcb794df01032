// Images that are written once and loaded without a compiler; libraries of more kernels than one image holds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "support.h"

namespace metal_on_cpu {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

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
  std::string emit(const std::string& name, int64_t add, bool checked) {
    const std::string path = (folder_ / name).string();
    EXPECT_EQ(source_->kernel("times3").constant(0, add).emit(path, checked), "");
    return path;
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

TEST_F(Images, RunWithoutACompiler) {
  const std::string path = emit("a.image", 5, true);
  emit("b.image", 6, true), emit("c.image", 6, false);
  const std::string before = std::getenv("PATH");
  setenv("PATH", "/nowhere", 1);
  const auto one = Library::from_image(path), all = Library::from_image(folder_.string());
  std::vector<int> y;
  ASSERT_TRUE(one.ok()) << one.message();
  ASSERT_TRUE(all.ok()) << all.message();
  EXPECT_THAT(all.value().kernel_names(), SizeIs(20));
  for (const ConstantValue& add : {ConstantValue(int64_t{6}), ConstantValue(uint64_t{6})}) {
    for (const bool checked : {false, true}) {
      const auto r = run(all.value(), "times19", add, checked, y);
      ASSERT_TRUE(r.ok()) << r.message();
      EXPECT_EQ(y, (std::vector<int>{25, 44, 63, 82}));
      EXPECT_EQ(r.value().text(), "");
    }
  }
  EXPECT_THAT(run(all.value(), "times1", int64_t{9}, true, y).message(),
              HasSubstr("times.metal: there is no image with 0=9, checked; there are: 0=5, checked; 0=6, fast; 0=6, checked"));
  EXPECT_THAT(run(one.value(), "absent", int64_t{5}, true, y).message(),
              HasSubstr("there is no such kernel; there are: times0"));
  EXPECT_EQ(one.value().kernel("times1").constant(0, int64_t{5}).signature().value().arguments.size(), 2u);
  setenv("PATH", before.c_str(), 1);
}

TEST_F(Images, KeepTheirPlaces) {
  const auto library = Library::from_image(emit("a.image", 5, true));
  ASSERT_TRUE(library.ok()) << library.message();
  std::vector<int> y;
  const auto r = run(library.value(), "times7", int64_t{5}, true, y);
  ASSERT_TRUE(r.ok()) << r.message();
  EXPECT_THAT(r.value().text(), HasSubstr("times.metal:6: out-of-bounds-read: reads 4 bytes at byte 16 of buffer(0)"));
}

TEST_F(Images, ThatAreNoneAreRefused) {
  const std::string path = emit("a.image", 5, false);
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  const std::string good = text.str();
  const auto refused = [&](const std::string& contents) {
    std::ofstream(path, std::ios::binary) << contents;
    return Library::from_image(path).message();
  };
  EXPECT_THAT(refused(""), HasSubstr("a.image: is no image"));
  EXPECT_THAT(refused(good.substr(0, good.size() - 1)), HasSubstr("is cut off"));
  EXPECT_THAT(refused(good.substr(good.size() - 60)), HasSubstr("longer than the file"));
  std::string other = good;
  other.replace(other.rfind("build ") + 6, 1, "x");
  EXPECT_THAT(refused(other), HasSubstr("another version"));
  EXPECT_THAT(Library::from_image((folder_ / "absent.image").string()).message(), HasSubstr("is no image"));
  fs::remove(path);
  EXPECT_THAT(Library::from_image(folder_.string()).message(), HasSubstr("holds no file *.image"));
  EXPECT_THAT(source_->kernel("times3").emit((folder_ / "no" / "a.image").string(), false), HasSubstr("cannot be written"));
}

}  // namespace
}  // namespace metal_on_cpu
