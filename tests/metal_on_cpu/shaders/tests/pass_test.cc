// What the pass of checked mode does to LLVM IR, and the registers that it estimates.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compiler/process.h"
#include "support.h"

namespace metal_on_cpu {
namespace {

using ::testing::AllOf;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::Le;
using ::testing::Not;

ProcessResult through_pass(const std::string& ir, const std::string& level) {
  return run_process({"clang-19", "-x", "ir", "-", level, "-fpass-plugin=" METAL_ON_CPU_PASS, "-S", "-emit-llvm", "-o", "-"},
                     ir);
}

TEST(Pass, CountsOperationsOfShaderFunctionsByBlock) {
  const ProcessResult r = through_pass(
      "define void @f(<4 x float> %x, float %b) #0 {\n  %a = fadd <4 x float> %x, %x\n  br label %next\n\nnext:\n"
      "  %m = call float @llvm.fma.f32(float %b, float %b, float %b)\n  ret void\n}\n"
      "define i32 @g(i32 %n) #1 {\n  %s = add i32 %n, 2\n  ret i32 %s\n}\ndeclare float @llvm.fma.f32(float, float, float)\n"
      "@keep = global ptr @f\nattributes #0 = { sanitize_address }\nattributes #1 = { nounwind }\n",
      "-O0");
  EXPECT_EQ(r.exit_code, 0) << r.errors;
  EXPECT_THAT(r.output, HasSubstr("constant [26 x i32] [i32 4, i32 0, i32 0, i32 0, i32 0, i32 0, i32 0, i32 0, i32 0, i32 0, "
                                  "i32 0, i32 0, i32 0, i32 0, i32 0, i32 1,"));
  EXPECT_THAT(r.output, HasSubstr("  call void @msl_block(i32 1)\n  %m = call float @llvm.fma"));
}

TEST(Pass, LeavesNothingOfBytesThatAreOverwritten) {
  const ProcessResult r = through_pass(
      "define void @f(ptr %y, float %v) #0 {\n  %a = alloca [4 x float]\n"
      "  call void @llvm.memset.p0.i64(ptr %a, i8 0, i64 16, i1 false), !annotation !0\n  store float %v, ptr %a\n"
      "  %x = load float, ptr %a\n  store float %x, ptr %y\n  ret void\n}\n"
      "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)\n@keep = global ptr @f\nattributes #0 = { sanitize_address }\n!0 = "
      "!{!\"auto-init\"}\n",
      "-O2");
  EXPECT_EQ(r.exit_code, 0) << r.errors;
  EXPECT_THAT(r.output, Not(HasSubstr("msl_uninitialized")));
}

TEST(Pass, RefusesRecursion) {
  const ProcessResult r = through_pass(
      "define i32 @f(i32 %n) #0 {\n  %m = call i32 @f(i32 %n)\n  %s = add i32 %m, 1\n  ret i32 %s\n}\nattributes #0 = { "
      "sanitize_address }\n",
      "-O0");
  EXPECT_NE(r.exit_code, 0);
  EXPECT_THAT(r.errors, HasSubstr("error: 'f' calls itself: recursion is not supported"));
}

// `body` runs between reading and writing n values that are all alive.
uint64_t registers(const std::string& type, int n, const std::string& zero = "0") {
  std::string text = "#include <metal_stdlib>\nusing namespace metal;\nkernel void k(device const " + type +
                     "* x [[buffer(0)]], device " + type + "* y [[buffer(1)]]) {\n";
  for (int i = 0; i < n; ++i) text += type + " a" + std::to_string(i) + " = x[" + std::to_string(i) + "];\n";
  text += "threadgroup_barrier(mem_flags::mem_device);\n";
  for (int i = 0; i < n; ++i)
    text += "y[" + std::to_string(i) + "] = a" + std::to_string(i) + " + " + type + "(" + zero + ");\n";
  auto library = Library::from_source(text + "}\n");
  EXPECT_TRUE(library.ok()) << library.message();
  std::vector<char> x(4096), y(4096);
  auto r = library.value().kernel("k").dispatch().buffer(0, std::as_const(x)).buffer(1, y).count().run();
  EXPECT_TRUE(r.ok()) << r.message();
  return r.value().counters.registers_estimated;
}

TEST(Registers, AreThoseAliveAtOnce) {
  EXPECT_THAT(registers("float", 32), AllOf(Ge(32u), Le(40u)));
  EXPECT_THAT(registers("float", 64), AllOf(Ge(64u), Le(72u)));
  EXPECT_THAT(registers("half", 32), AllOf(Ge(16u), Le(24u)));
  EXPECT_THAT(registers("float4", 8), AllOf(Ge(32u), Le(40u)));
  EXPECT_THAT(registers("ulong", 16), AllOf(Ge(32u), Le(40u)));
}

}  // namespace
}  // namespace metal_on_cpu
