// What the pass of checked mode does to LLVM IR, and the registers that a GPU would take.
#include "compiler/process.h"
#include "support.h"

namespace metal_on_cpu {
namespace {

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

/// Those of a kernel in which n values of a lane are alive at once: their sum, and then each of them, is needed.
metal_on_cpu::Registers registers(const std::string& type, int n, const std::string& index = "j") {
  const std::string loop = "#pragma unroll\n  for (uint j = 0; j < " + std::to_string(n) + "; j++) ";
  auto library = Library::from_source("#include <metal_stdlib>\nusing namespace metal;\nkernel void k(device const " + type +
                                      "* x [[buffer(0)]], device " + type +
                                      "* y [[buffer(1)]], uint i [[thread_position_in_grid]]) {\n  " + type + " a[" +
                                      std::to_string(n) + "], sum = 0;\n" + loop + "a[j] = x[i * 512 + j];\n" + loop +
                                      "sum += a[j];\n" + loop + "y[i * 512 + j] = a[" + index + "] * sum;\n}\n");
  EXPECT_TRUE(library.ok()) << library.message();
  auto r = library.value().kernel("k").registers();
  EXPECT_TRUE(r.ok()) << r.message();
  return r.value();
}

TEST(Registers, AreThoseOfAGpu) {
  EXPECT_THAT(registers("float", 32).used, AllOf(Ge(32u), Le(48u)));
  EXPECT_THAT(registers("float", 96).used, AllOf(Ge(96u), Le(112u)));
  EXPECT_EQ(registers("float", 96).memory, 0u);
  EXPECT_GE(registers("float", 160).memory, 4 * 32u);
  EXPECT_GE(registers("float", 32, "(j + i) % 32").memory, 128u) << "indexed at run time";
}

TEST(Registers, OfAKernelThatIsNotThere) {
  auto library = Library::from_source("kernel void k() {}\n");
  EXPECT_THAT(library.value().kernel("other").registers().message(), HasSubstr("there is no kernel 'other'"));
}

}  // namespace
}  // namespace metal_on_cpu
