// What the rewriter makes of a shader, word for word, and that no line moves.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "compiler/rewriter.h"

namespace metal_on_cpu {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

std::string rewritten(const std::string& text, const ConstantLiterals& constants = {}, Rewriting mode = Rewriting::kCompile) {
  const Rewritten r = rewrite(tokenize(text), mode, constants);
  EXPECT_EQ(to_text(r.errors), "");
  EXPECT_EQ(std::count(r.text.begin(), r.text.end(), '\n'), std::count(text.begin(), text.end(), '\n'));
  return r.text;
}

TEST(Rewriter, DropsAddressSpaces) {
  EXPECT_EQ(rewritten("static float f(device const float* p, constant int& n) { thread float x = p[n]; return x; }"),
            "static float f( const float* p, const int& n) {  float x = p[n]; return x; }");
  EXPECT_EQ(rewritten("struct S { int n; int f() const constant { return n; } };"),
            "struct S { int n; int f() const  { return n; } };");
}

TEST(Rewriter, KeepsAddressSpacesForTheCheck) {
  EXPECT_EQ(
      rewritten("kernel void k(device float* p [[buffer(0)]]) { threadgroup float a[2]; a[0] = *p; }", {}, Rewriting::kCheck),
      " void k(device float* p ) { static threadgroup float a[2]; a[0] = *p; }");
}

TEST(Rewriter, GivesFunctionConstantsTheirValues) {
  ConstantLiterals constants;
  constants[3] = "true";
  EXPECT_EQ(rewritten("constant bool flag [[function_constant(3)]];", constants),
            "static constexpr bool flag=bool(true); static constexpr bool msl_defined_flag=true;");
  EXPECT_EQ(rewritten("constant int n [[function_constant(4)]];", constants),
            "static constexpr msl::Constant<int,4> n{\"n\"}; static constexpr bool msl_defined_n=false;");
  EXPECT_EQ(
      rewritten(
          "constant int n [[function_constant(4)]]; constant bool big = n > 3; constant bool all = big; constant int k = 1;",
          {}, Rewriting::kCompileLate),
      "static constexpr msl::Constant<int,4> n{\"n\"}; static constexpr msl::ConstantDefined<4> msl_defined_n{}; "
      "static const struct { MSL_INLINE operator bool() const { return bool(n > 3); } } big{}; "
      "static const struct { MSL_INLINE operator bool() const { return bool(big); } } all{}; const int k = 1;");
}

TEST(Rewriter, DropsWhatThePreprocessorLeavesOfUnrolling) {
  EXPECT_EQ(rewritten("\n#pragma unroll (MIN(4, N))\n#pragma unroll(4)\n#pragma clang loop unroll(full)\n"),
            "\n#pragma unroll \n#pragma unroll(4)\n#pragma clang loop unroll(full)\n");
}

TEST(Rewriter, PlacesThreadgroupVariables) {
  EXPECT_THAT(rewritten("kernel void k(device float* p [[buffer(0)]]) {\n  threadgroup float a[4], b;\n  a[0] = b;\n}\n"),
              HasSubstr("typedef float msl_type_3_a[ 4 ]; MSL_THREADGROUP(msl_type_3_a,3,a);typedef float msl_type_4_b; "
                        "MSL_THREADGROUP(msl_type_4_b,4,b);"));
}

TEST(Rewriter, RegistersKernelsAndInstantiations) {
  const std::string text =
      "template <typename T> kernel void k(device T* p [[buffer(2)]], uint i [[thread_position_in_grid]]) { p[i] = 0; }\n"
      "template [[host_name(\"k_float\")]] kernel void k<float>(device float*, uint);\n";
  const Rewritten r = rewrite(tokenize(text), Rewriting::kCompile, {});
  EXPECT_THAT(r.kernels, ElementsAre("k_float"));
  EXPECT_THAT(r.text, HasSubstr("msl_params_1={{{msl::kBufferParam,msl::kBuiltinCount,false,nullptr,2,0,\"p\"},"
                                "{msl::kBuiltinParam,msl::kThreadPositionInGrid,false,nullptr,0,0,\"i\"}}};"));
  EXPECT_THAT(r.text, HasSubstr("MSL_KERNEL(msl_kernel_2,\"k_float\",msl_params_1,2,0,\"shader\",1,1,::k< float >);"));
}

TEST(Rewriter, GivesEachInstantiationItsOwnLimitOfThreads) {
  const std::string text =
      "template <typename T, short N> [[kernel, max_total_threads_per_threadgroup(2 * N)]] void k(device T* p [[buffer(0)]]) "
      "{ p[0] = N; }\ntemplate [[host_name(\"k32\")]] kernel void k<float, 32>(device float*);\n";
  EXPECT_THAT(rewritten(text), HasSubstr("template < typename T , short N > static constexpr unsigned msl_threads_2=2 * N;"));
  EXPECT_THAT(rewritten(text), HasSubstr("MSL_KERNEL(msl_kernel_3,\"k32\",msl_params_1,1,(::msl_threads_2< float , 32 >),"));
}

TEST(Rewriter, JoinsOverloadsOfAddressSpaces) {
  const std::string one = "static float f(device float* p) { return *p; }\n",
                    two = "static float f(threadgroup float* p) { return *p; }\n";
  EXPECT_EQ(rewritten(one + two), "static float f( float* p) { return *p; }\n\n");
  const Rewritten r = rewrite(tokenize(one + "static float f(threadgroup float* p) { return 1; }\n"), Rewriting::kCompile, {});
  EXPECT_THAT(to_text(r.errors), HasSubstr("shader:2: error: overloads that differ only in address spaces"));
}

TEST(Rewriter, ReadsLiteralsAndLineMarkers) {
  EXPECT_EQ(rewritten("constant half a = 1.5h; constant bfloat b = 2.0bf; constant int c = 0x1h;"),
            "const half a = ((half)1.5); const bfloat b = ((bfloat)2.0f); const int c = 0x1h;");
  const TokenStream s = tokenize("# 1 \"a.metal\"\nint a;\n# 40 \"b.h\" 1\nint b;\n");
  EXPECT_EQ(s.diagnostic(s.skip(s.tokens.size() - 6), "").file, "b.h");
  EXPECT_EQ(s.diagnostic(s.skip(s.tokens.size() - 6), "").line, 40u);
}

TEST(Rewriter, RegistersTheKernelsOfARange) {
  const Rewritten r =
      rewrite(tokenize("kernel void a() {}\nkernel void b() {}\nkernel void c() {}\n"), Rewriting::kCompile, {}, {1, 2});
  EXPECT_THAT(r.kernels, ElementsAre("a", "b", "c"));
  EXPECT_THAT(r.text, HasSubstr(",\"b\","));
  EXPECT_THAT(r.text, Not(HasSubstr(",\"a\",")));
  EXPECT_THAT(r.text, Not(HasSubstr(",\"c\",")));
}

}  // namespace
}  // namespace metal_on_cpu
