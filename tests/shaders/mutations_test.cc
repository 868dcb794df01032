// Planted mistakes: each changes one place of the shaders, and the check that the tests make must notice.
#include "kinds.h"

namespace shaders {
namespace {

constexpr Kind kInt4 = kKinds[0], kInt4Zeros = kKinds[1], kInt4Additive = kKinds[2], kFp4 = kKinds[3], kMxfp4 = kKinds[4],
               kNvfp4 = kKinds[5], kInt8 = kKinds[6], kInt4Sparse = kKinds[8];

struct Mutation {
  const char *name, *file, *from, *to;
  Kind kind;
  int64_t m;
  enum What : uint8_t { product, int8, splits, gated, gelu, gathered, unpack, group64 } what = product;
};
void PrintTo(const Mutation& m, std::ostream* out) { *out << m.name; }

constexpr Mutation kMutations[] = {
    {"fp4_shift", "metal/decode.h", "q6 = q3 << 3", "q6 = q3 << 2", kMxfp4, 1},
    {"fp4_sign", "metal/decode.h", "(q2 & 0x80008000u)", "(q1 & 0x80008000u)", kMxfp4, 12},
    {"u4_high_nibble", "metal/decode.h", "1 << 24 : 1 << 20", "1 << 24 : 1 << 21", kInt4, 1},
    {"u4_zero", "metal/scales.h", "z >> (8 * i) & 0xFF", "z >> (8 * i) & 0xF7", kInt4Zeros, 20},
    {"i8_bias", "metal/decode.h", "half2(1152.0h)", "half2(1151.0h)", kInt8, 1},
    {"sparse_position", "metal/decode.h", "second << (positions & 12)", "second << (positions & 8)", kInt4Sparse, 1},
    {"sparse_fill", "metal/decode.h", "0x88888888u", "0x77777777u", kInt4Sparse, 12},
    {"sparse_words", "metal/decode.h", "kBlockSlots * 96", "kBlockSlots * 128", kInt4Sparse, 1},
    {"e8m0_tile", "metal/scales.h", "(e << 15)", "(e << 14)", kMxfp4, 1},
    {"e4m3_shift", "metal/scales.h", "(odd & 0x007F007F) << 7", "(odd & 0x007F007F) << 6", kNvfp4, 20},
    {"record_pair", "metal/scales.h", "== 0 ? pair.x : pair.y", "!= 0 ? pair.x : pair.y", kNvfp4, 1},
    {"group_shift", "metal/scales.h", "slot >> group_shift", "slot >> 5", kInt4, 1, Mutation::group64},
    {"range_twice", "metal/scales.h", "scales_have_room ? Codes::range(0)", "true ? Codes::range(0)", kFp4, 12},
    {"additive_zero", "metal/gemv.metal", "zeros[m][Codes::kSparse ? i : 0];", "zeros[m][i];", kInt4Additive, 2},
    {"gemv_barrier", "metal/gemv.metal", "threadgroup_barrier(mem_flags::mem_threadgroup);", "", kInt4, 1},
    {"gemv_shuffle", "metal/gemv.metal", "simd_shuffle_xor(odd ? a : b, 1)", "simd_shuffle_xor(odd ? a : b, 2)", kInt4, 1},
    {"gemv_columns", "metal/gemv.metal", "m < args.m && n < args.n", "m < args.m", kInt4, 1},
    {"rows_past_m", "metal/product.h", "long(min(m, args.m - 1)) * args.lda", "long(m) * args.lda", kInt4, 5},
    {"ragged_read", "metal/activations.h", "if (k + i < K) v[i] = row[k + i]", "v[i] = row[k + i]", kInt4, 1},
    {"staged_buffer", "metal/gemm.metal", "shared[stage % S::kBuffers]", "shared[0]", kInt4, 20},
    {"staged_barrier", "metal/gemm.metal", "if (S::kBuffers == 1) threadgroup_barrier", "if (false) threadgroup_barrier", kInt4,
     40},
    {"staged_lane", "metal/gemm.metal", "lane_at(2 * span + quad % 2,", "lane_at(2 * span,", kInt4, 20},
    {"fragment_half", "metal/gemm.metal", "+ 4 * (fragment_row(lane) % 2)", "+ 2 * (fragment_row(lane) % 2)", kInt4, 12},
    {"store_row", "metal/gemm.metal", "2 * fragment_column(lane) + e; }", "2 * fragment_column(lane) + (1 - e); }", kInt4, 20},
    {"gelu_constant", "metal/epilogue.h", "0.044715f", "0.034715f", kInt4, 1, Mutation::gelu},
    {"finish_splits", "metal/finish.metal", "s < args.splits", "s < args.splits - 1", kInt4, 1, Mutation::splits},
    {"finish_pairs", "metal/finish.metal", "input * (interleaved ? 1 : columns)", "input * columns", kInt4, 1, Mutation::gated},
    {"quantize_range", "metal/prepare.metal", "/ 127.0f;", "/ 128.0f;", kInt4, 1, Mutation::int8},
    {"gather_column", "metal/prepare.metal", "args.lda + k];", "args.lda + slot];", kInt4, 1, Mutation::gathered},
    {"tie_to_even", "metal/exact.h", "(rest == tie && (rounded & 1) != 0)", "rest == tie", kFp4, 1, Mutation::unpack},
    {"subnormal_result", "metal/exact.h", "max(highest - 23, -149)", "highest - 23", kFp4, 1, Mutation::unpack},
    {"smallest_exponent", "metal/unpack.metal", "e == 0 ? 0x00400000u", "e == 0 ? 0u", kMxfp4, 1, Mutation::unpack},
};

class Mutations : public testing::TestWithParam<Mutation> {};

TEST_P(Mutations, AreNoticed) {
  const Mutation& mutation = GetParam();
  Spec s = spec_of(mutation.kind, mutation.m, 44, 360);
  s.int8 = mutation.what == Mutation::int8;
  if (mutation.what == Mutation::splits) s.splits = 2;
  if (mutation.what == Mutation::gelu) s.epilogue = MARLIN_EPILOGUE_GELU_TANH;
  if (mutation.what == Mutation::gathered) s.order = Order::shuffled;
  if (mutation.what == Mutation::group64) s.group = 64;
  if (mutation.what == Mutation::gated) {
    s.epilogue = MARLIN_EPILOGUE_SWIGLU;
    s.interleaved = true;
  }
  s.wild_scales = mutation.what == Mutation::unpack;
  Problem problem(s);
  if (mutation.what == Mutation::unpack && s.format == MARLIN_MXFP4) {  // exponents 0..
    for (size_t i = 0; i < problem.source.all().scales.size(); ++i)
      problem.source.all().scales[i] = static_cast<uint8_t>(i % 100);
  }
  ASSERT_TRUE(problem.pack());
  Setting setting;
  setting.changes = {{mutation.file, mutation.from, mutation.to}};
  if (mutation.what == Mutation::unpack) {
    EXPECT_FALSE(problem.check_unpack(MARLIN_F32, {}, setting));
  } else {
    EXPECT_FALSE(problem.run(setting) && problem.check());
  }
}

INSTANTIATE_TEST_SUITE_P(Shaders, Mutations, testing::ValuesIn(kMutations),
                         [](const auto& i) { return std::string(i.param.name); });

}  // namespace
}  // namespace shaders
