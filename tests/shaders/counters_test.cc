// Work that kernels do, counted: every byte of weights once, whole cache lines, no threadgroup memory for weights, few
// barriers. docs/decisions/0004-metal-kernels.md has the table that this prints with METAL_MARLIN_SHADER_TABLE=1.
#include <cstdio>
#include <cstdlib>

#include "kinds.h"

namespace shaders {
namespace {

constexpr int64_t kN = 256, kK = 1024;

struct Counted {
  Kind kind;
  int64_t group, m;
  marlin_dtype a_type = MARLIN_F16;
};
void PrintTo(const Counted& c, std::ostream* out) { *out << c.kind.name << " group " << c.group << " M " << c.m; }

constexpr Kind kInt4 = kKinds[0], kMxfp4 = kKinds[4], kNvfp4 = kKinds[5], kInt8 = kKinds[6],
               kInt4Sparse = {"int4_sparse", MARLIN_INT4, ZeroKind::none, ScaleType::f16, true};
constexpr Counted kCounted[] = {
    {kMxfp4, 32, 1},
    {kMxfp4, 32, 8},
    {kMxfp4, 32, 16},
    {kMxfp4, 32, 32},
    {kMxfp4, 32, 64},
    {kMxfp4, 32, 128},
    {kInt4, 128, 1},
    {kInt4, 128, 32},
    {kInt4, 0, 64},
    {kNvfp4, 16, 1},
    {kNvfp4, 16, 32},
    {kInt8, 64, 32},
    {kInt4Sparse, 64, 1},
    {kInt4Sparse, 64, 32},
    {kMxfp4, 32, 32, MARLIN_BF16},
    {kMxfp4, 32, 64, MARLIN_BF16},
    {kMxfp4, 32, 32, MARLIN_F32},
    {kMxfp4, 32, 64, MARLIN_F32},
};

class Work : public testing::TestWithParam<Counted> {};

double ratio(uint64_t a, uint64_t b) { return static_cast<double>(a) / static_cast<double>(b); }

TEST_P(Work, IsWhatTheLayoutPromises) {
  Spec s = spec_of(GetParam().kind, GetParam().m, kN, kK);
  s.group = GetParam().group;
  s.a_type = GetParam().a_type;
  Problem problem(s);
  Setting setting;
  setting.count = true;
  ASSERT_TRUE(problem.pack());
  ASSERT_TRUE(problem.run(setting));
  ASSERT_TRUE(problem.check());

  const KernelRow& row = kernel_row(s);
  const metal_on_cpu::Counters& c = problem.counters;
  const auto &codes = c.buffers.at(MARLIN_BUFFER_CODES), &scales = c.buffers.at(MARLIN_BUFFER_SCALES),
             &a = c.buffers.at(MARLIN_BUFFER_A);
  const auto passes = static_cast<uint64_t>((s.m + row.rows - 1) / row.rows),
             padded_m = passes * static_cast<uint64_t>(row.rows);
  const bool staged = row.columns == 128, matrix = std::string(row.family) == "gemm";
  const auto packed = static_cast<uint64_t>(problem.plan.layout.row_blocks() * problem.plan.layout.row_block_code_bytes());

  EXPECT_EQ(codes.unique_bytes_read, packed);
  EXPECT_EQ(codes.bytes_read, packed * passes);  // once for all rows of A that a tile holds
  EXPECT_EQ(codes.simdgroup_lines, codes.unique_lines * passes);
  EXPECT_EQ(scales.simdgroup_lines, scales.unique_lines * passes);
  EXPECT_LE(ratio(codes.bytes_read + scales.bytes_read, (codes.unique_bytes_read + scales.unique_bytes_read) * passes), 1.10);
  EXPECT_EQ(c.matrix_multiplies, matrix ? padded_m * kN * kK / 512 : 0);
  EXPECT_LE(c.threadgroup_memory, 16u << 10);
  // What is written to threadgroup memory is activations or sums, nothing of the weights.
  const auto width = static_cast<uint64_t>(oracle::bytes_of(s.a_type));
  const uint64_t threadgroup_bytes = staged ? padded_m * kK * width * (kN / 128) : padded_m * kN * 4 * 4;
  EXPECT_EQ(c.threadgroup_bytes_written, threadgroup_bytes);
  // Between two barriers no more than half of the threadgroup memory can be read while as much is written.
  const double barriers = ratio(c.threadgroup_barriers, c.threadgroups), lines = ratio(a.simdgroup_lines, a.unique_lines);
  const uint64_t staged_bytes = static_cast<uint64_t>(row.rows) * kK * width;
  EXPECT_LE(barriers, staged ? std::max(ratio(staged_bytes, 8 << 10), kK / 128.0) : 1);
  if (staged) {
    EXPECT_EQ(lines, kN / 128.0);
  }

  if (std::getenv("METAL_MARLIN_SHADER_TABLE") == nullptr) return;
  std::printf("| %s g%d | %d | %s_%s | %.2f | %.2f | %.2f | %.2f | %.2f | %llu | %.0f | %llu | %llu |\n", GetParam().kind.name,
              static_cast<int>(GetParam().group), static_cast<int>(s.m), row.family, row.suffix,
              ratio(codes.bytes_read, codes.unique_bytes_read),
              ratio(codes.bytes_read + scales.bytes_read, codes.unique_bytes_read + scales.unique_bytes_read),
              ratio(codes.simdgroup_lines, codes.unique_lines), ratio(scales.simdgroup_lines, scales.unique_lines),
              lines / (kN / 128.0), static_cast<unsigned long long>(c.threadgroup_memory), barriers,
              static_cast<unsigned long long>(c.matrix_multiplies), static_cast<unsigned long long>(c.registers_estimated));
}

INSTANTIATE_TEST_SUITE_P(Kernels, Work, testing::ValuesIn(kCounted), [](const auto& i) {
  const char* const a_type = i.param.a_type == MARLIN_F32 ? "_f32" : i.param.a_type == MARLIN_F16 ? "_f16" : "_bf16";
  return std::string(i.param.kind.name) + "_g" + std::to_string(i.param.group) + "_m" + std::to_string(i.param.m) + a_type;
});

}  // namespace
}  // namespace shaders
