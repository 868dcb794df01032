// Which text is compiled for a kernel, when, and what comes of a compiler that refuses it.
#include <thread>

#include "backends/gpu/kernels.h"
#include "backends/metal/kernel_text.h"
#include "fixture.h"
#include "shaders/common/arguments.h"

namespace metal_marlin::metal {
namespace {

using ::testing::HasSubstr;

class LibrariesTest : public DeviceTest {
 protected:
  device::Device& open_with(std::span<const ShaderFile> files) {
    DeviceOptions with;
    with.shaders = files;
    with.logger = {[](void* user, int32_t, const char* message) { static_cast<LibrariesTest*>(user)->log.push_back(message); },
                   this};
    return open(with);
  }
  Status status_of(std::string_view name) { return device->kernel(name, kPlain).status(); }
  static std::vector<char> built(const std::string& text) {
    std::vector<char> bytes(metal_test_make_library(text.c_str(), nullptr, 0));
    metal_test_make_library(text.c_str(), bytes.data(), bytes.size());
    return bytes;
  }
  std::vector<std::string> log;
};

constexpr ShaderFile kBroken{"half", "kernel void half_a_kernel( {"}, kPlainFile{"scale append follow narrow", kShader},
    kOther{"other", "kernel void other() {}"};

TEST_F(LibrariesTest, KernelsThatAreNotThere) {
  open();
  for (const char* const name : {"absent", "scale_of_another_kind", "absent_tensor"}) {
    EXPECT_CODE(status_of(name), MARLIN_E_NOT_FOUND);
    EXPECT_THAT(status_of(name).message(), HasSubstr(name));
  }
  open_with({});
  EXPECT_CODE(status_of("scale"), MARLIN_E_NOT_FOUND);
}

TEST_F(LibrariesTest, WhatTheCompilerRefusesTakesNothingElseAlong) {
  const ShaderFile files[] = {kBroken, kPlainFile};
  open_with(files);
  for (int i = 0; i < 3; ++i) {
    const Status status = status_of("half_a_kernel");
    EXPECT_CODE(status, MARLIN_E_UNSUPPORTED);
    EXPECT_EQ(status.native_code(), static_cast<int32_t>(MTLLibraryErrorCompileFailure));
    EXPECT_THAT(status.message(), HasSubstr("MTLLibraryErrorDomain 3: "));
  }
  EXPECT_EQ(metal_test::settings()->compiled, 1u) << "the refusal is remembered";
  EXPECT_NE(kernel("scale"), nullptr);
  EXPECT_EQ(metal_test::settings()->compiled, 2u);
}

// Such as a compiler that the system ended.
TEST_F(LibrariesTest, OtherErrorsAreNotRemembered) {
  open();
  metal_test::settings()->fail[metal_test::Fault::compile] = 1;
  EXPECT_CODE(status_of("scale"), MARLIN_E_DEVICE);
  EXPECT_NE(kernel("scale"), nullptr);
}

TEST_F(LibrariesTest, APipelineThatIsRefusedIsUnsupported) {
  for (const int family : {5, 9}) {
    metal_test::settings()->apple_family = family;
    open();
    metal_test::settings()->fail[metal_test::Fault::pipeline] = 1;
    EXPECT_CODE(status_of("scale"), MARLIN_E_UNSUPPORTED);
    EXPECT_NE(kernel("narrow"), nullptr);
  }
}

TEST_F(LibrariesTest, NothingIsCompiledButWhatTheNameTells) {
  const ShaderFile files[] = {kBroken, kOther, kPlainFile};
  open_with(files);
  EXPECT_NE(kernel("narrow"), nullptr);
  EXPECT_NE(kernel("scale"), nullptr);
  EXPECT_EQ(metal_test::settings()->compiled, 1u);
}

TEST_F(LibrariesTest, WhatIsExpectedIsCompiledAtOnce) {
  const ShaderFile files[] = {kOther, kPlainFile};
  open_with(files);
  metal_test::settings()->compile_seconds = 0.05;
  for (const char* const name : {"scale", "other", "narrow", "absent"}) device->expect(name, kPlain);
  EXPECT_NE(kernel("scale"), nullptr);
  EXPECT_NE(kernel("other"), nullptr);
  EXPECT_EQ(metal_test::settings()->compiled, 2u);
  EXPECT_EQ(metal_test::settings()->most_compiling, 2u);
}

TEST_F(LibrariesTest, WhatIsExpectedMayOutliveTheDevice) {
  open();
  metal_test::settings()->compile_seconds = 0.05;
  device->expect("scale", kPlain);
  device.reset();
}

TEST_F(LibrariesTest, FilesThatCameCompiledAreNotCompiledAgain) {
  const std::vector<char> bytes = built(std::string(kShader));
  ShaderFile files[] = {{"scale append follow narrow", "kernel void more() {}", std::as_bytes(std::span(bytes))}};
  open_with(files);
  EXPECT_NE(kernel("scale"), nullptr);
  EXPECT_NE(kernel("narrow"), nullptr);
  EXPECT_EQ(metal_test::settings()->compiled, 1u) << "of the stand-in for a .metallib, when it is loaded";
  EXPECT_EQ(log.size(), 0u);
}

// As one for another system is not loaded.
TEST_F(LibrariesTest, TheTextIsTheWayBack) {
  std::vector<char> bytes = built(std::string(kShader));
  bytes[0] = 'X';
  const ShaderFile files[] = {{"scale append follow narrow", kShader, std::as_bytes(std::span(bytes))}};
  open_with(files);
  EXPECT_NE(kernel("scale"), nullptr);
  EXPECT_NE(kernel("append", {}), nullptr);
  EXPECT_THAT(log, ::testing::ElementsAre(HasSubstr("loading the compiled kernels")));
}

TEST_F(LibrariesTest, AKernelIsCompiledAlone) {
  const auto text = [](std::string_view name, uint32_t shift) {
    const Constant constants[] = {{MARLIN_CONSTANT_GROUP_SHIFT, Constant::Type::uint32, shift}};
    return macros_of(name, constants);
  };
  EXPECT_EQ(text("gemv_u4_sparse_bf16_m6", 5), "#define MARLIN_PRODUCTS(X) X(u4_sparse, U4Sparse, bf16, bfloat)\n"
                                               "#define MARLIN_GEMV_ROWS(X, ...) X(__VA_ARGS__, 6)\n");
  EXPECT_EQ(text("regdecode_i8_i8_m16_n32_direct", 5),
            "#define MARLIN_PRODUCTS(X) X(i8, I8, i8, char)\n"
            "#define MARLIN_REGDECODE_TILES(DIRECT, THREADGROUP, ...) DIRECT(__VA_ARGS__, 16, 32)\n");
  EXPECT_THAT(text("regdecode_fp4_f32_m64_n128_threadgroup", 5), HasSubstr("THREADGROUP(__VA_ARGS__, 64, 128)"));
  EXPECT_THAT(text("regdecode_fp4_f16_m16_n32_nax", 5), HasSubstr("MARLIN_NAX_ROWS(X, ...) X(__VA_ARGS__, 16)\n"));
  EXPECT_EQ(text("unpack_planes", 5), "#define MARLIN_UNPACKED(X) X(planes, Planes)\n");
  for (const char* const name : {"finish", "route", "gather_b2", "quantize_bf16"}) EXPECT_EQ(text(name, 5), "") << name;
  for (const auto& [shift, step] : {std::pair{4u, "16"}, {5u, "32"}, {6u, "64"}, {9u, "64"}})
    EXPECT_THAT(text("regdecode_fp4_f16_m64_n64_tensor", shift), HasSubstr(std::string("_STEPS(X) X(") + step + ")"));
}

// Of the policy's kernels each has one file, and headers are part of the text of each that includes them.
TEST_F(LibrariesTest, TheLibrarysOwnFiles) {
  const Shaders files = embedded_shaders();
  for (const auto& row : gpu::simdgroup_policy().kernels)
    for (int codes = 0; codes < gpu::kKernelCodes; ++codes)
      for (int activation = 0; activation < gpu::kActivationKinds; ++activation) {
        const std::string_view name =
            row.name(static_cast<gpu::KernelCodes>(codes), static_cast<gpu::ActivationKind>(activation));
        if (name.empty()) continue;
        const auto is_of = [&](const ShaderFile& file) {
          return (" " + std::string(file.kernels) + " ").find(" " + std::string(family_of(name)) + " ") != std::string::npos;
        };
        EXPECT_EQ(std::count_if(files.begin(), files.end(), is_of), 1) << name;
      }
  ASSERT_GE(files.size(), 7u);
  for (const ShaderFile& file : files) {
    EXPECT_TRUE(file.library.empty()) << "no compiler of Metal's is here";
    EXPECT_THAT(std::string(file.text), HasSubstr("#line 1 \"layout.h\"\n"));
    EXPECT_THAT(std::string(file.text), ::testing::Not(HasSubstr("#include \"")));
  }
}

}  // namespace
}  // namespace metal_marlin::metal
