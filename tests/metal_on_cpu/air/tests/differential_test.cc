// The same kernel by two compilers: Apple's (AIR of the wheel) and this project's front-end (the wheel's own headers). Outputs
// have to agree in every bit, and the counts of traffic, barriers and collectives as well.
#include <gtest/gtest.h>
#include <metal_on_cpu/metal_on_cpu.h>

#include <cstdlib>
#include <random>

#include "wheel.h"

namespace metal_on_cpu {
namespace {

struct Case {
  const char *kernel, *instance, *headers;  // instance: what the source instantiates under that name
  int rows, columns;
  bool half;
  enum Family { kSoftmax, kReduction } family;
  uint32_t threads;
};
constexpr const char* kSoftmaxHeaders = "#include \"mlx/backend/metal/kernels/softmax.h\"\n";
constexpr const char* kReductionHeaders =
    "#include \"mlx/backend/metal/kernels/atomic.h\"\n#include \"mlx/backend/metal/kernels/reduction/ops.h\"\n"
    "#include \"mlx/backend/metal/kernels/reduce.h\"\n";
constexpr Case kCases[] = {
    {"block_softmax_float16", "softmax_single_row<half>", kSoftmaxHeaders, 7, 1001, true, Case::kSoftmax, 256},
    {"block_softmax_float32", "softmax_single_row<float>", kSoftmaxHeaders, 7, 1001, false, Case::kSoftmax, 256},
    {"all_reduce_sumfloat32", "all_reduce<float, float, Sum<float>>", kReductionHeaders, 3, 5003, false, Case::kReduction, 256},
    {"block_softmax_bfloat16", "softmax_single_row<bfloat>", kSoftmaxHeaders, 5, 515, true, Case::kSoftmax, 160},
    {"block_softmax_precise_float16", "softmax_single_row<half, float>", kSoftmaxHeaders, 3, 700, true, Case::kSoftmax, 192},
    {"all_reduce_minfloat32", "all_reduce<float, float, Min<float>>", kReductionHeaders, 3, 5003, false, Case::kReduction, 256},
    {"all_reduce_sumint32", "all_reduce<int, int, Sum<int>>", kReductionHeaders, 3, 5003, false, Case::kReduction, 256},
    {"all_reduce_maxfloat32", "all_reduce<float, float, Max<float>>", kReductionHeaders, 3, 5003, false, Case::kReduction, 256},
};

std::string source_of(const Case& c) {
  const std::string name = c.instance;
  return std::string("#include <metal_common>\n#include <metal_simdgroup>\n#include \"mlx/backend/metal/kernels/utils.h\"\n") +
         c.headers + "template [[host_name(\"" + c.kernel + "\")]] [[kernel]] decltype(" + name + ") " + name + ";\n";
}

struct Outcome {
  std::vector<unsigned char> output;
  Report report;
};

Result<Outcome> run(const Library& library, const Case& c, const std::vector<unsigned char>& input) {
  const size_t element = c.half ? 2 : 4,
               outputs = c.family == Case::kReduction ? static_cast<size_t>(c.rows) : input.size() / element;
  Outcome o{std::vector<unsigned char>(outputs * element, 0xcd), {}};
  Dispatch d = library.kernel(c.kernel).dispatch();
  d.buffer(0, input.data(), input.size()).output(1, o.output.data(), o.output.size()).threads(c.threads).check().count();
  if (c.family == Case::kReduction) {
    d.value(2, uint64_t{input.size() / element})
        .value(3, static_cast<uint64_t>(c.columns))
        .groups(1, static_cast<uint32_t>(c.rows));
  } else {
    d.value(2, c.columns).groups(static_cast<uint32_t>(c.rows));
  }
  auto report = d.run();
  if (!report) return report.error();
  o.report = report.take();
  return o;
}

std::vector<unsigned char> random_input(const Case& c) {
  std::mt19937 random(7);
  std::vector<unsigned char> bytes(static_cast<size_t>(c.rows) * static_cast<size_t>(c.columns) * (c.half ? 2 : 4));
  for (size_t i = 0; i < bytes.size(); i += c.half ? 2 : 4) {
    if (c.half) {  // finite: an exponent below 18
      const uint16_t h = static_cast<uint16_t>((random() & 0x83ff) | (random() % 18) << 10);
      std::copy_n(reinterpret_cast<const unsigned char*>(&h), 2, &bytes[i]);
    } else {
      const float x = std::uniform_real_distribution<float>(-8, 8)(random);
      std::copy_n(reinterpret_cast<const unsigned char*>(&x), 4, &bytes[i]);
    }
  }
  return bytes;
}

class Differential : public ::testing::TestWithParam<Case> {};

TEST_P(Differential, BothCompilersAgree) {
  if (!air::wheel().absent.empty()) GTEST_SKIP() << air::wheel().absent;
  setenv("METAL_ON_CPU_AIR_TO_NATIVE", METAL_ON_CPU_AIR_TO_NATIVE, 1);
  const Case& c = GetParam();
  const auto apple = Library::from_file(air::wheel().metallib);
  ASSERT_TRUE(apple.ok()) << apple.message();
  CompileOptions options;
  options.include_folders = {METAL_ON_CPU_AIR_HEADERS, air::wheel().headers};
  options.language = 17;
  options.defines = {"_disjunction=disjunction"};  // a name of Apple's standard library
  const auto ours = Library::from_source(source_of(c), options);
  ASSERT_TRUE(ours.ok()) << ours.message();
  const auto input = random_input(c);
  const auto a = run(apple.value(), c, input), b = run(ours.value(), c, input);
  ASSERT_TRUE(a.ok()) << a.message();
  ASSERT_TRUE(b.ok()) << b.message();
  EXPECT_EQ(a.value().report.text(), "");
  EXPECT_EQ(b.value().report.text(), "");
  EXPECT_EQ(a.value().output, b.value().output);
  const Counters &x = a.value().report.counters, &y = b.value().report.counters;
  EXPECT_EQ(x.threadgroup_barriers, y.threadgroup_barriers);
  EXPECT_EQ(x.simdgroup_barriers, y.simdgroup_barriers);
  EXPECT_EQ(x.reductions, y.reductions);
  EXPECT_EQ(x.shuffles, y.shuffles);
  EXPECT_EQ(x.matrix_multiplies, y.matrix_multiplies);
  EXPECT_EQ(x.threadgroup_bytes_read, y.threadgroup_bytes_read);
  EXPECT_EQ(x.threadgroup_bytes_written, y.threadgroup_bytes_written);
  // Buffers from 2 on are sizes in constant memory: how often they are read again is the optimiser's choice, and Apple's may
  // take buffers as distinct.
  for (const int buffer : {0, 1}) {
    EXPECT_EQ(x.buffers.at(buffer).bytes_read, y.buffers.at(buffer).bytes_read) << buffer;
    EXPECT_EQ(x.buffers.at(buffer).bytes_written, y.buffers.at(buffer).bytes_written) << buffer;
  }
}

INSTANTIATE_TEST_SUITE_P(Wheel, Differential, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.kernel); });

}  // namespace
}  // namespace metal_on_cpu
