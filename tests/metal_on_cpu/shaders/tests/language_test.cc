// What the Metal Shading Language forbids is refused at the shader's own line; what it allows
// is not.
#include "support.h"

namespace metal_on_cpu {
namespace {

struct Refused {
  const char* name;
  const char* source;   // after the two usual lines
  const char* message;  // "line: error: ..." or a part of it
};

const Refused kRefused[] = {
    {"syntax", "kernel void k(device float* y [[buffer(0)]]) {\n  y[0] = 1\n}\n", "s.metal:4: error: expected ';'"},
    {"type", "kernel void k(device float* y [[buffer(0)]]) {\n  y[0] = unknown(3);\n}\n",
     "s.metal:4: error: use of undeclared identifier 'unknown'"},
    {"missing_include", "#include \"absent.h\"\n", "s.metal:3: error: 'absent.h' file not found"},
    {"host_header", "#include <cmath>\n", "s.metal:3: error: 'cmath' file not found"},
    {"unknown_attribute", "kernel void k(device float* y [[bufer(0)]]) { y[0] = 1; }\n",
     "s.metal:3: error: unknown attribute 'bufer'"},
    {"parameter_without_attribute", "kernel void k(device float* y [[buffer(0)]], uint i) { y[i] = 1; }\n",
     "s.metal:3: error: kernel 'k': parameter 'i' needs an attribute"},
    {"buffer_index", "kernel void k(device float* y [[buffer(31)]]) { y[0] = 1; }\n", "the index must be in 0..30"},
    {"double_type", "static float f(float x) {\n  return double(x);\n}\n", "s.metal:4: error: 'double' is not supported"},
    {"virtual_function", "struct S { virtual int f() { return 1; } };\n", "s.metal:3: error: 'virtual' is not supported"},
    {"new_operator", "kernel void k(device float* y [[buffer(0)]]) { y[0] = *new float; }\n",
     "s.metal:3: error: 'new' is not supported"},
    {"exceptions", "static void f() { throw 1; }\n", "'throw' is not supported"},
    {"goto_statement", "static void f() { goto end; end:; }\n", "'goto' is not supported"},
    {"function_pointer",
     "static int g(int x) { return x; }\nkernel void k(device int* y [[buffer(0)]]) {\n  int (*f)(int) = g;\n  y[0] = "
     "f(1);\n}\n",
     "s.metal:5: error: pointers to functions"},
    {"function_pointer_by_alias",
     "static int g(int x) { return x; }\nusing F = int (*)(int);\nkernel void k(device int* y [[buffer(0)]]) {\n  F f = g;\n  "
     "y[0] = f(1);\n}\n",
     "s.metal:6: error: pointers to functions"},
    {"lambda", "kernel void k(device int* y [[buffer(0)]]) {\n  auto f = [](int x) { return x; };\n  y[0] = f(1);\n}\n",
     "s.metal:4: error: lambda expressions"},
    {"recursion",
     "static int f(int n) {\n  return n < 2 ? 1 : n * f(n - 1);\n}\nkernel void k(device int* y [[buffer(0)]]) { y[0] = "
     "f(y[1]); }\n",
     "s.metal:3: error: 'f(int)' calls itself"},
    {"recursion_in_the_middle",
     "struct S {\n  int n;\n  void f(int k) thread { if (k > 0) f(k - 1);\n n += k; }\n};\nkernel void k(device int* y "
     "[[buffer(0)]]) { S s{0}; s.f(y[0]); y[1] = s.n; }\n",
     "'S::f(int)' calls itself"},
    {"mutual_recursion",
     "static int odd(int n);\nstatic int even(int n) { return n == 0 ? 1 : odd(n - 1) + 3; }\nstatic int odd(int n) { return n "
     "== 0 ? 0 : even(n - 1) * 5; }\n"
     "kernel void k(device int* y [[buffer(0)]]) { y[0] = even(y[1]); }\n",
     "recursion is not supported"},
    {"unclosed_brace", "kernel void k(device int* y [[buffer(0)]]) {\n  y[0] = 1;\n", "s.metal:4: error: expected '}'"},
    {"no_text", "\x91\x05\xff(", "s.metal:3: error: "},
    {"same_index", "kernel void k(device int* y [[buffer(0)]],\n              device int* x [[buffer(0)]]) { y[0] = x[1]; }\n",
     "s.metal:4: error: kernel 'k': parameters 'y' and 'x' have the same index [[buffer(0)]]"},
    {"pointer_without_space", "static float f(float* p) { return *p; }\n",
     "s.metal:3: error: pointer parameter without an address space"},
    {"reference_without_space", "static void f(float& p) { p = 1; }\n",
     "s.metal:3: error: reference parameter without an address space"},
    {"threadgroup_as_device",
     "static void f(device float* p) { p[0] = 1; }\nkernel void k(device float* y [[buffer(0)]]) {\n  threadgroup float "
     "a[4];\n  f(a);\n  y[0] = 1;\n}\n",
     "s.metal:6: error: no matching function for call to 'f'"},
    {"device_as_thread",
     "static void f(thread float* p) { p[0] = 1; }\nkernel void k(device float* y [[buffer(0)]]) {\n  f(y);\n}\n",
     "s.metal:5: error: no matching function for call to 'f'"},
    {"constant_as_device",
     "kernel void k(constant float* c [[buffer(0)]], device float* y [[buffer(1)]]) {\n  device const float* p = c;\n  y[0] = "
     "p[0];\n}\n",
     "s.metal:4: error: cannot initialize a variable"},
    {"threadgroup_assigned_to_device",
     "kernel void k(device float* y [[buffer(0)]]) { threadgroup float s[4]; threadgroup float* t = s;\n  device float* p;\n  "
     "p = t;\n  "
     "p[0] = 1;\n}\n",
     "s.metal:5: error: assigning 'threadgroup float *' to 'device float *'"},
    {"cast_of_threadgroup_to_device",
     "kernel void k(device float* y [[buffer(0)]]) { threadgroup float s[4]; threadgroup float* t = s;\n  device float* p = "
     "(device "
     "float*)t;\n  p[0] = y[0];\n}\n",
     "s.metal:4: error: cast from 'threadgroup float *' to 'device float *' is not allowed"},
    {"cast_of_variable_to_device",
     "kernel void k(device float* y [[buffer(0)]]) {\n  float v[4] = {1, 2, 3, 4};\n  y[0] = *(device const int*)&v[1] + "
     "1;\n}\n",
     "s.metal:5: error: cast from 'float *' to 'device int const *' is not allowed"},
    {"cast_of_constant_to_thread",
     "constant float kTable[2] = {1, 2};\nkernel void k(device float* y [[buffer(0)]]) {\n  y[0] = 1 + ((thread "
     "float*)kTable)[1];"
     "\n}\n",
     "s.metal:5: error: cast from "},
    {"cast_in_template",
     "template <class T> static device T* f(threadgroup float* t) {\n  return (device T*)(t + 1);\n}\nkernel void k(device "
     "int* y [[buffer(0)]]) { threadgroup float t[4];\n  y[0] = *f<int>(t);\n}\n",
     "s.metal:4: error: cast from 'threadgroup float *' to 'device int *'"},
    {"reinterpret_cast_of_threadgroup",
     "kernel void k(device float* y [[buffer(0)]]) { threadgroup float s[4]; threadgroup float* t = s;\n  y[0] = "
     "*reinterpret_cast<device float*>(t);\n}\n",
     "s.metal:4: error: cast from 'threadgroup float *' to 'device float *'"},
    {"threadgroup_in_helper", "static void f() {\n  threadgroup float a[4];\n  a[0] = 1;\n}\n",
     "s.metal:4: error: threadgroup variables can only be declared in kernel functions"},
    {"position_beside_positions",
     "kernel void k(device int* y [[buffer(0)]], uint3 g [[threadgroup_position_in_grid]], uint s "
     "[[simdgroup_index_in_threadgroup]],\n  uint i [[thread_position_in_grid]]) { y[i] = g.x + s; }\n",
     "s.metal:4: error: kernel 'k': 'i' has another number of components"},
    {"variable_of_the_program", "constant int kA = 1;\nstatic const float kB[2] = {1, 2};\n",
     "s.metal:4: error: variables of a program are constant"},
    {"static_member", "struct S { int n;\n  static constexpr int kC = 3; };\n",
     "s.metal:4: error: variables of a program are constant"},
    {"template_of_variables", "template <class T>\nconstexpr bool kD = true;\n",
     "s.metal:3: error: variables of a program are constant"},
    {"static_in_function", "static int f(int x) {\n  static const int kTable[2] = {1, 2};\n  return kTable[x];\n}\n",
     "s.metal:4: error: static variables of a function are constant"},
    {"initialized_threadgroup_variable",
     "kernel void k(device int* y [[buffer(0)]]) {\n  threadgroup int t[2] = {1, 2};\n  y[0] = t[1];\n}\n",
     "s.metal:4: error: threadgroup variables have no initializers"},
    {"member_of_threads",
     "template <class T> struct S { T n; T f() const { return n; } };\nkernel void k(device int* y [[buffer(0)]]) { "
     "threadgroup "
     "S<int> t;\n  y[0] = t.f(); }\n",
     "s.metal:5: error: cannot initialize object parameter"},
    {"member_of_another_space",
     "struct S { int n; int f() const constant { return n; } };\nkernel void k(device S* y [[buffer(0)]]) { \n  y[0].n = "
     "y[1].f(); "
     "}\n",
     "s.metal:5: error: cannot initialize object parameter"},
    {"two_elements_of_a_matrix",
     "kernel void k(device float* y [[buffer(0)]]) {\n  simdgroup_float8x8 m;\n  thread vec<float, 2>& e = "
     "m.thread_elements();\n  y[0] = e[0];\n}\n",
     "s.metal:5: error: "},
    {"host_name_of_nothing", "template [[host_name(\"a\")]] [[kernel]] void g<int>(device int*);\n",
     "'g' is no kernel template"},
};

void PrintTo(const Refused& r, std::ostream* out) { *out << r.name; }

// Compiles all kernels too: some errors show only then.
std::string complaint(const std::string& source, const CompileOptions& options = {}) {
  auto library = Library::from_source("#include <metal_stdlib>\nusing namespace metal;\n" + source, options, "s.metal");
  if (!library.ok() || library.value().kernel_names().empty()) return library.message();
  std::vector<int> y(64);
  auto report = library.value().kernel(library.value().kernel_names()[0]).dispatch().buffer(0, y).buffer(1, y).check().run();
  return report.message();
}

class Language : public ::testing::TestWithParam<Refused> {};
TEST_P(Language, Refuses) { EXPECT_THAT(complaint(GetParam().source), HasSubstr(GetParam().message)); }
INSTANTIATE_TEST_SUITE_P(Rules, Language, ::testing::ValuesIn(kRefused), [](const auto& test) { return test.param.name; });

TEST(LanguageVersion, SeventeenIsTheLanguageOfMetal4) {
  CompileOptions options;
  options.language = 17;
  const char* const seventeen = "static_assert(__METAL_VERSION__ == 400 && __HAVE_TENSOR__);\n";
  EXPECT_EQ(complaint(seventeen, options), "");
  EXPECT_NE(complaint(seventeen), "");
  EXPECT_EQ(complaint("static_assert(__METAL_VERSION__ == 320);\n"), "");
}

// As Apple's compiler takes them, which warns.
TEST(LanguageRules, LetExtensionsOfCxx17Pass) {
  EXPECT_EQ(complaint(R"(
struct P { int a, b; };
template <int N> static int above() { if constexpr (N > 1) return 1; return 0; }
template <class... A> static int sum(A... a) { return (a + ...); }
constant float kLeast = 1, kMost = 2;
kernel void k(device float* y [[buffer(0)]], uint i [[thread_position_in_grid]]) {
  P p{.a = 1, .b = 2};
  auto [a, b] = p;
  if (const int n = above<2>(); n > 0) y[i] = a + b + sum(1, 2, 3) + kLeast / kMost + 0x1.8p3f;
}
)"),
            "");
}

TEST(LanguageRules, LetOtherPeoplesWaysOfWritingPass) {
  EXPECT_EQ(complaint(R"(
#define MIN(x, y) ((x) < (y) ? (x) : (y))
#define FIRST 100
constant bool kFlag [[function_constant(FIRST)]];
static float twice(device const float* p, short n) { return 2 * p[n]; }
template <typename T, T (*read)(device const float*, short)> static T applied(device const float* p) { return read(p, 1); }
template <typename T> static T product(T a, T b, bool use) { return use ? a * b : T(0); }
kernel void k(device float* y [[buffer(0)]], device const bfloat* x [[buffer(1)]], uint i [[thread_position_in_grid]]) {
  float sums[4] = { [0 ... 2] = 0.f, [3] = 1 };
  constexpr short n = 4;
  #pragma unroll (MIN(4, n))
  for (short r = 0; r < MIN(4, n); ++r) sums[r] += y[r];
  const bool use = y[0] > 0;
  const float4 v = float4(y[0], y[1], y[2], y[3]), scaled = use ? v * 2 : 0.f, other = use ? 0.f : v * v;
  const bfloat b = use ? x[i] : 0;
  y[i] = sums[i & 3] + scaled.x + other.y + b + applied<float, twice>(y) + product(v, v, use).z;
}
)"),
            "");
}

TEST(LanguageRules, LetValidShadersPass) {
  EXPECT_EQ(complaint(R"(
struct Args { int n; float scale; float at(int i) const { return scale * i; } };
struct Twice { template <class T> T operator()(T x) const { return x + x; } };
template <class T> static T load(const device T* p, uint i) { return p[i]; }
template <class T> static T load(const threadgroup T* p, uint i) { return p[i]; }
template <int N> static int count() { return 1 + count<N - 1>(); }
template <> int count<0>() { return 0; }
using Function = float (*)(float);
static float half_of(float x) { return x / 2; }
template <Function f> static float applied(float x) { return f(x); }
static void scale(thread float4& v, constant float& by) { v.xyz *= by; }
struct Steps {
  int at, left;
  void next(int n) thread {  // ends by calling itself: a loop
    at += n;
    if (left-- > 0) next(at / 2);
  }
};
constant float kTable[3] = {1, 2, 3};
template <class T> constexpr constant bool kIsTwo = sizeof(T) == 2;
struct Sizes {
  static constexpr constant int kCount = kIsTwo<half> ? 3 : 0;
  static constexpr int count() { return kCount; }
  int n;
  int twice() const threadgroup { return 2 * n; }
};
enum { kSeven = 7 };
static int odd(int n);
kernel void k(device float* y [[buffer(0)]], constant Args& a [[buffer(1)]], uint i [[thread_position_in_grid]]) {
  threadgroup float t[32];
  threadgroup Sizes sizes;
  threadgroup float* at = t;
  sizes.n = kSeven;
  static constexpr constant int kOne = 1;
  simdgroup_float8x8 m = make_filled_simdgroup_matrix<float, 8, 8>(sizes.twice() + kOne + at[i] + Sizes::count());
  m.thread_elements()[0] = 1;
  const thread auto& pair = reinterpret_cast<thread vec<float, 2>&>(m.thread_elements());
  t[i] = load(y, i);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  Args copy = a;
  float4 v = float4(load(t, i), 1, 2, 3);
  scale(v, kTable[1]);
  Steps walk{0, int(y[i])};
  walk.next(int(i));
  y[i] = pair.x + applied<half_of>(walk.at) + v.y + copy.at(2) + Twice()(3) + count<3>();
}
)"),
            "");
}

TEST(LanguageRules, LetCastsPassThatKeepTheirSpace) {
  EXPECT_EQ(complaint(R"(
struct Node { int kind; float value[3]; };
template <class T> static T at(const device void* p, int i) { return ((const device T*)p)[i]; }
kernel void k(device float* y [[buffer(0)]], constant Node& n [[buffer(1)]], uint i [[thread_position_in_grid]]) {
  threadgroup float4 t[8];
  float v[2] = {1, 2};
  threadgroup half* h = (threadgroup half*)t + 4;
  *h = 1;
  const device int* p = (const device int*)y + 1;
  const device uchar* bytes = (const device uchar*)(const device void*)&y[2];
  const ulong address = (ulong)y;
  device float* q = (device float*)(address + 4);
  y[i] = *(const thread int*)&v[1] + *(constant int*)&n.value[0] + p[0] + bytes[1] + at<int>(y, 3) + float(*h) + *q;
}
)"),
            "");
}

TEST(Dispatches, ThatMetalWouldRefuse) {
  auto library = must(Library::from_source(
      "#include <metal_stdlib>\nusing namespace metal;\nkernel void k(device float* y [[buffer(0)]], constant float4& c "
      "[[buffer(2)]]) { y[0] = c.x; }\n[[max_total_threads_per_threadgroup(64)]] kernel "
      "void small(device float* y [[buffer(0)]]) { y[0] = 1; }\n",
      {}, "s.metal"));
  std::vector<float> y(4);
  const auto all = [&] { return library.kernel("k").dispatch().buffer(0, y).buffer(2, y); };
  EXPECT_EQ(all().run().message(), "");
  EXPECT_THAT(library.kernel("absent").dispatch().run().message(), HasSubstr("there is no such kernel; there are: k, small"));
  EXPECT_THAT(library.kernel("k").dispatch().buffer(2, y).run().message(),
              HasSubstr("no buffer is given for 'y' [[buffer(0)]]"));
  EXPECT_THAT(all().buffer(2, y.data(), 12).run().message(), HasSubstr("has 12 bytes; the type referred to needs 16"));
  EXPECT_THAT(all().groups(0).run().message(), HasSubstr("the grid is empty"));
  EXPECT_THAT(all().threads(0).run().message(), HasSubstr("no threads"));
  EXPECT_THAT(all().threads(1025).run().message(), HasSubstr("at most 1024"));
  EXPECT_THAT(all().buffer(31, y).run().message(), HasSubstr("buffer index 31 is not in 0..30"));
  EXPECT_THAT(library.kernel("small").dispatch().buffer(0, y).threads(65).run().message(),
              HasSubstr("[[max_total_threads_per_threadgroup]] is 64"));
  EXPECT_THAT(Library::from_file("absent.metal").message(), HasSubstr("absent.metal: cannot be read"));
}

}  // namespace
}  // namespace metal_on_cpu
