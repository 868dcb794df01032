#include "planted.h"

#include <cmath>
#include <limits>

namespace shaders {
namespace {

constexpr Kind kInt4 = kKinds[0], kInt4Zeros = kKinds[1], kInt4Additive = kKinds[2], kFp4 = kKinds[3], kMxfp4 = kKinds[4],
               kNvfp4 = kKinds[5], kInt8 = kKinds[6], kInt4Sparse = kKinds[8], kAdditiveSparse = kKinds[10],
               kInt3Additive = kKinds[15], kInt5 = kKinds[16], kQ4K = kKinds[20], kQ6K = kKinds[22], kUint8 = kKinds[23],
               kFp8 = kKinds[24], kMxfp8 = kKinds[25], kQ2K = kKinds[18], kIq4Xs = kKinds[27], kNf4 = kKinds[28],
               kNested = kKinds[29], kF32 = kKinds[31], kBf16 = kKinds[33];

constexpr const char* kPacker = "src/backends/gpu/pack.cc";
constexpr Mutation kMutations[] = {
    {"fp4_shift", "metal/decode.h", "q6 = q3 << 3", "q6 = q3 << 2", kMxfp4, 1},
    {"fp4_sign", "metal/decode.h", "(q2 & 0x80008000u)", "(q1 & 0x80008000u)", kMxfp4, 12},
    {"u4_high_nibble", "metal/decode.h", "1 << 24 : 1 << 20", "1 << 24 : 1 << 21", kInt4, 1},
    {"u4_zero", "metal/scales.h", "z >> (8 * i) & 0xFF", "z >> (8 * i) & 0xF7", kInt4Zeros, 20},
    {"i8_bias", "metal/decode.h", "1152.0h)", "1151.0h)", kInt8, 1},
    {"sparse_position", "metal/decode.h", "second << (positions & 12)", "second << (positions & 8)", kInt4Sparse, 1},
    {"sparse_fill", "metal/decode.h", "0x88888888u", "0x77777777u", kInt4Sparse, 12},
    {"sparse_words", "metal/decode.h", "kBlockSlots * 96", "kBlockSlots * 128", kInt4Sparse, 1},
    {"e8m0_tile", "metal/scales.h", "(e << 15)", "(e << 14)", kMxfp4, 1},
    {"e4m3_shift", "metal/decode.h", "(bytes & 0x007F007Fu) << 7", "(bytes & 0x007F007Fu) << 6", kNvfp4, 20},
    {"e4m3_code_step", "metal/decode.h", "low, low >> 8, high", "low, low, high", kFp8, 1},
    {"e4m3_range", "metal/decode.h", "kFormE4m3 ? 256 : 1", "kFormE4m3 ? 128 : 1", kFp8, 12},
    {"uint8_zero", "metal/decode.h", "kFormUnsigned ? 1024.0h", "kFormUnsigned ? 1025.0h", kUint8, 20},
    {"record_pair", "metal/scales.h", "== 0 ? even : odd", "!= 0 ? even : odd", kNvfp4, 1},
    {"group_shift", "metal/scales.h", "slot >> group_shift", "slot >> 5", kInt4, 1, Mutation::group64},
    {"range_twice", "metal/scales.h", "scales_have_room ? Codes::range(0)", "true ? Codes::range(0)", kFp4, 12},
    {"additive_zero", "metal/gemv.metal", "zeros[m][Codes::kSparse ? i : 0];", "zeros[m][i];", kInt4Additive, 2},
    {"gemv_barrier", "metal/gemv.metal", "threadgroup_barrier(mem_flags::mem_threadgroup);", "", kInt4, 1},
    {"gemv_shuffle", "metal/gemv.metal", "simd_shuffle_xor(odd ? a : b, 1)", "simd_shuffle_xor(odd ? a : b, 2)", kInt4, 1},
    {"gemv_columns", "metal/gemv.metal", "tile.has(m) && n < args.n", "tile.has(m)", kInt4, 1},
    {"rows_past_m", "metal/product.h", "min(first + i, last)", "first + i", kInt4, 5},
    {"ragged_read", "metal/activations.h", "if (k + i < K) v[i] = row[k + i]", "v[i] = row[k + i]", kInt4, 1},
    {"shared_buffer", "metal/regdecode.metal", "shared[stage % 2]", "shared[0]", kInt4, 20},
    {"shared_lane", "metal/regdecode.metal", "lane_at(2 * span + quad % 2,", "lane_at(2 * span,", kInt4, 20},
    {"fragment_half", "metal/regdecode.metal", "+ 4 * (fragment_row(lane) % 2)", "+ 2 * (fragment_row(lane) % 2)", kInt4, 12},
    {"store_row", "metal/regdecode.metal", "2 * fragment_column(lane) + e; }", "2 * fragment_column(lane) + (1 - e); }", kInt4,
     20},
    {"gelu_constant", "metal/epilogue.h", "0.044715f", "0.034715f", kInt4, 1, Mutation::gelu},
    {"finish_splits", "metal/finish.metal", "s < args.splits", "s < args.splits - 1", kInt4, 12, Mutation::splits},
    {"gemv_wide", "metal/gemv.metal", "s < sharers; s++", "s < 4; s++", kInt4, 1, Mutation::splits},
    {"gemv_wide_blocks", "metal/gemv.metal", "b += sharer.y", "b += 4", kInt4, 2, Mutation::splits},
    {"finish_pairs", "metal/finish.metal", "input * (interleaved ? 1 : columns)", "input * columns", kInt4, 1, Mutation::gated},
    {"quantize_range", "metal/prepare.metal", "/ 127.0f;", "/ 128.0f;", kInt4, 1, Mutation::int8},
    {"scale_overflow", "metal/gemv.metal", "fabs(scale) > range;", "false;", kInt4, 1, Mutation::large_scales},
    {"silu_zero", "metal/epilogue.h", "? -0.0f :", "? 0.0f :", kInt4, 1, Mutation::silu_far_below},
    {"gelu_zero", "metal/epilogue.h", "return -0.0f;", "return 0.0f;", kInt4, 1, Mutation::gelu_far_below},
    {"fast_exp", "metal/epilogue.h", "precise::exp(-argument)", "fast::exp(-argument)", kInt4, 1, Mutation::silu_below},
    {"gather_column", "metal/prepare.metal", "args.lda + k];", "args.lda + first + i];", kInt4, 1, Mutation::gathered},
    {"tensor_before_barrier", "metal4/regdecode_tensor.metal", "threadgroup_barrier(mem_flags::mem_threadgroup);\n        for",
     "for", kInt4, 40, Mutation::tensor},
    {"tensor_after_barrier", "metal4/regdecode_tensor.metal", "threadgroup_barrier(mem_flags::mem_threadgroup);  //", "//",
     kInt4, 40, Mutation::tensor},
    {"tensor_half_block", "metal4/regdecode_tensor.metal", "(place.from / kStage) << 3", "0", kMxfp4, 40, Mutation::tensor},
    {"tensor_scale_row", "metal4/regdecode_tensor.metal", "stage.scale[step][at[0]]", "stage.scale[step][at[1]]", kInt4, 40,
     Mutation::tensor},
    {"tensor_slots_behind", "metal4/regdecode_tensor.metal", "|| slot >= place.count", "", kInt4, 40, Mutation::tensor},
    {"tensor_valid", "metal4/regdecode_tensor.metal", "if (!sum.is_valid_element(i)) continue;\n    const", "const", kInt4, 40,
     Mutation::tensor},
    {"tensor_range", "metal4/regdecode_tensor.metal", "1.0f / missing_range<Codes>()", "1.0f", kMxfp4, 40, Mutation::tensor},
    {"tensor_ones", "metal4/regdecode_tensor.metal", "ones ? float2(one[t]) :", "", kAdditiveSparse, 40, Mutation::tensor},
    {"tensor_sum_of_group", "metal4/regdecode_tensor.metal", "units < STEP / kUnitSlots", "units < 2", kInt4Additive, 40,
     Mutation::tensor},
    {"tensor_sum_of_row", "metal4/regdecode_tensor.metal", "sum_of_a[step][at[1]]", "sum_of_a[step][at[0]]", kInt4Additive, 40,
     Mutation::tensor},
    {"nax_half", "metal4/regdecode_nax.metal", "both.x : both.y", "both.y : both.x", kInt4, 20, Mutation::nax},
    {"nax_unit", "metal4/regdecode_nax.metal", "span.unit(unit % units)", "span.unit(0)", kMxfp4, 20, Mutation::nax},
    {"nax_lane", "metal4/regdecode_nax.metal", "lane_at(r, unit / units)", "lane_at(r, g)", kInt4, 20, Mutation::nax},
    {"nax_group", "metal4/regdecode_nax.metal", ": k);", ": k0);", kMxfp4, 20, Mutation::nax},
    {"nax_group_of_16", "metal4/regdecode_nax.metal", "k + kUnitSlots * j : k", "k : k", kNvfp4, 20, Mutation::nax},
    {"nax_pair", "metal4/regdecode_nax.metal", "scale.scale + 2 * pair", "scale.scale", kMxfp4, 20, Mutation::nax},
    {"nax_row_of_a", "metal4/regdecode_nax.metal", "16 * t + 8 * h + fragment_row", "16 * t + fragment_row", kInt4, 20,
     Mutation::nax},
    {"nax_tile", "metal4/regdecode_nax.metal", "16 * (e / 8) + 4 * j + e % 4", "4 * j + e % 4", kInt4, 20, Mutation::nax},
    {"nax_range", "metal4/regdecode_nax.metal", "(1.0f / missing_range<Codes>())", "1.0f", kMxfp4, 20, Mutation::nax},
    {"nax_barrier", "metal4/regdecode_nax.metal", "threadgroup_barrier(mem_flags::mem_threadgroup);", "", kInt4, 20,
     Mutation::nax},
    {"nax_sum_of_a", "metal4/regdecode_nax.metal", "lane_at((4 * j + i) % 8, j)", "lane_at(i, j)", kInt4Additive, 20,
     Mutation::nax},
    {"nax_other_rows", "metal4/regdecode_nax.metal", "j < 2 ? own[0] : own[1]", "own[0]", kInt4Additive, 20, Mutation::nax},
    {"nax_spans", "metal4/regdecode_nax.metal", "simd_shuffle_xor(own[h], 8)", "own[h]", kInt4Additive, 20, Mutation::nax},
    {"tie_to_even", "common/exact.h", "(rest == tie && (rounded & 1) != 0)", "rest == tie", kFp4, 1, Mutation::unpack},
    {"subnormal_result", "common/exact.h", "max(highest - 23, -149)", "highest - 23", kFp4, 1, Mutation::unpack},
    {"plane_shift", "metal/decode.h", "plane << 4 & mask", "plane << 3 & mask", kQ6K, 1},
    {"plane_width", "metal/decode.h", "code_bits == 6 ? 0x00300030u", "true ? 0x00300030u", kInt5, 12},
    {"plane_third_bit", "metal/decode.h", "above[t] << 2", "above[t] << 1", kInt3Additive, 1},
    {"plane_unit", "metal/decode.h", "one = third >> w", "one = third >> (2 * w)", kInt5, 1},
    {"plane_second_word", "metal/decode.h", "second = plane[kLanes]", "second = plane[0]", kQ6K, 20},
    {"plane_tail", "metal/decode.h", "plane_words(code_bits, 2) : 0", "plane_words(code_bits, 1) : 0", kInt5, 40,
     Mutation::tensor},
    {"plane_zero_point", "metal/decode.h", "1u << code_bits >> 1", "8u", kInt5, 1},
    {"factor_once", "metal/scales.h", "wanted >> groups_shift != group >> groups_shift", "new_pair && wanted < 8", kQ4K, 20},
    {"factor_tile", "metal/scales.h", "factors[i / 2]", "factors[i % 2]", kQ4K, 1},
    {"scale_sign", "metal/scales.h", "float(char(integers", "float(uchar(integers", kQ6K, 12},
    {"minimum_sign", "metal/scales.h", "zero_pair), zero_factors, -1.0f", "zero_pair), zero_factors, 1.0f", kQ4K, 1,
     Mutation::int8},
    {"joined_scale", "metal/scales.h", "joined ? integers & kLowNibbles : integers", "integers", kQ2K, 1},
    {"joined_minimum", "metal/scales.h", "integers >> 4 & kLowNibbles", "integers & kLowNibbles", kQ2K, 20},
    {"unpack_joined", "metal/unpack.metal", "float(both >> 4)", "float(both & 15)", kQ2K, 1, Mutation::unpack},
    {"lut4_half", "metal/decode.h", "16 + 4 * t", "12 + 4 * t", kNf4, 1},
    {"lut4_lane", "metal/scales.h", "[lane % 16]", "[lane % 8]", kNf4, 20},
    {"lut4_sum", "metal/decode.h", "simd_shuffle(own, ushort(code))", "simd_shuffle(own, ushort(code ^ 1))", kIq4Xs, 1,
     Mutation::int8},
    {"nested_unit", "metal/scales.h", "b >> (8 * i) & 0xFF", "b >> (8 * i) & 0x7F", kNested, 1},
    {"nested_offset", "metal/scales.h", "factors[i], offsets[i]", "factors[i], offsets[0]", kNested, 20},
    {"nested_factor", "metal/scales.h", "1 + quad / factor_quads", "quad / factor_quads", kNested, 1},
    {"unpack_nested", "metal/unpack.metal", "levels.factors(quad)[i]", "levels.factors(0)[i]", kNested, 1, Mutation::unpack},
    {"float_step", "metal/decode.h", "unit.word[2 * t + 1][i]", "unit.word[2 * t][i]", kF32, 1},
    {"float_half", "metal/decode.h", "both & 0xFFFF0000u", "both & 0xFF000000u", kBf16, 20},
    {"float_words", "metal/decode.h", "(w * unit_words() + v)", "(w * 4 + v)", kF32, 12},
    {"unpack_minimum", "metal/unpack.metal", "as_type<uint>(-two_level", "as_type<uint>(two_level", kQ4K, 1, Mutation::unpack},
    {"pack_plane_step", kPacker, "plane_bit(e % 4)", "plane_bit(e % 4 ^ 1)", kInt5, 1},
    {"pack_plane_order", kPacker, "words += (units + 1) / 2", "words += 1", kInt3Additive, 1},
    {"pack_uint8", kPacker, "layout_.code_form == kFormOwn ? 0", "true ? 0", kUint8, 1},
    {"pack_e4m3_shift", kPacker, "kFormE4m3 ? kE4m3Exponent", "false ? kE4m3Exponent", kMxfp8, 1},
    {"pack_nan_code", kPacker, "(c & 0x7F) == 0x7F", "c == 0x7E", kFp8, 1, Mutation::nan_code},
    {"pack_super_block", kPacker, ": factor_quad_at(s, in_block % 8", ": factor_quad_at(s, in_block / 8", kQ6K, 1},
    {"pack_joined", kPacker, "groups + group)] << 4)", "groups + group)] << 3)", kQ2K, 1},
    {"pack_codebook", kPacker, "to.data() + layout.zeros_at, fixed", "to.data() + layout.scales_at, fixed", kNf4, 1},
    {"pack_nested", kPacker, "kRowBlock * (quad + 1) +", "kRowBlock * (quad + 1) + 1 +", kNested, 1},
    {"pack_float_half", kPacker, "floats + 2 * (4 + t)", "floats + 2 * (3 + t)", kBf16, 1},
    {"pack_minimum", kPacker, "layout_.zeros_at, stripe_.zero_factors", "layout_.zeros_at, stripe_.scale_factors", kQ4K, 1},
    {"pack_lane", kPacker, "lane_at(in_block % 8, j)", "lane_at(in_block % 8, j ^ 1)", kInt4, 1},
    {"pack_tile", kPacker, "* 4 + in_block / 8) * 4", "* 4 + in_block % 4) * 4", kInt4, 12},
    {"pack_scale", kPacker, "in_block % 8, pairs)", "in_block / 8, pairs)", kInt4, 1},
    {"pack_pairs", kPacker, "groups_of_16 && size == 1", "false", kNvfp4, 1},
    {"pack_zero", kPacker, "(row * plan_.meta.groups + group) * zero_size", "row * plan_.meta.groups * zero_size", kInt4Zeros,
     1},
    {"pack_shift", kPacker, "*scale + shift", "*scale", kMxfp4, 1, Mutation::low_scales},
    {"pack_factor", kPacker, "usual - *shift)", "usual + 1 - *shift)", kMxfp4, 20, Mutation::low_scales},
    {"pack_nan", kPacker, "if (nan) out", "if (false) out", kMxfp4, 1, Mutation::nan_scale},
    {"pack_kept", kPacker, "first | second << 2", "second | first << 2", kInt4Sparse, 1},
    {"pack_positions", kPacker, "positions << (units == 1 ? 16 : 8 * w)", "positions << 8 * w", kInt4Sparse, 1},
    {"pack_order", kPacker, "plan_.slot_to_k.empty() ?", "true ?", kInt4, 1, Mutation::gathered},
    {"pack_fp4_sign", kPacker, "codes[t] >> 3 & 1", "codes[t] >> 2 & 1", kFp4, 1},
    {"pack_int8_step", kPacker, "codes[4 + t] << 16", "codes[3 + t] << 16", kInt8, 1},
    {"smallest_exponent", "metal/unpack.metal", "e == 0 ? 0x00400000u", "e == 0 ? 0u", kMxfp4, 1, Mutation::unpack},
};

}  // namespace

std::string Mutation::question() const {
  return std::string(kind.name) + " " + std::to_string(m) + " " + std::to_string(what) + (of_packer() ? " packer" : "");
}

std::span<const Mutation> planted_mistakes() { return kMutations; }

Problem problem_of(const Mutation& mutation) {
  problem::Case s =
      case_of(mutation.kind, mutation.m, 44, mutation.of_packer() ? 150 : 360);  // 150: the last block has 32 slots
  if (mutation.what == Mutation::int8) s.compute = MARLIN_COMPUTE_INT8;
  if (mutation.what == Mutation::splits) s.splits = 2, s.k = 1100;  // a block for each of eight simdgroups
  if (mutation.what == Mutation::tensor) {
    s.suffix = "m64_n64_tensor";
    s.k = 352;  // ends with a block of 32 slots
    if (s.format != MARLIN_FORMAT_MXFP4) s.group = 64;
  }
  if (mutation.what == Mutation::nax) s.suffix = "m32_n32_nax", s.k = 352;  // a block of 64 slots, and one of 32
  if (mutation.what == Mutation::gelu) s.epilogue = MARLIN_EPILOGUE_GELU_TANH;
  if (mutation.what == Mutation::gathered) s.order = Order::shuffled;
  if (mutation.what == Mutation::group64) s.group = 64;
  if (mutation.what == Mutation::gated) {
    s.epilogue = MARLIN_EPILOGUE_SWIGLU;
    s.interleaved = true;
  }
  if (mutation.what == Mutation::unpack) s.range = problem::Range::bits;
  const bool large_scales = mutation.what == Mutation::large_scales;
  if (large_scales) {
    s.compute = MARLIN_COMPUTE_INT8;
    s.a_type = MARLIN_F32;
    s.scale_type = ScaleType::f32;
  }
  const bool below = mutation.what == Mutation::silu_below;
  if (below || mutation.far_below()) {
    s.epilogue = mutation.what == Mutation::gelu_far_below ? MARLIN_EPILOGUE_GELU_ERF : MARLIN_EPILOGUE_SILU;
    s.bias_type = MARLIN_F32;
  }
  Problem problem(s);
  // A sum of codes times such a scale overflows, and times the activations' own scale it does not.
  for (size_t i = 0; large_scales && i < problem.a.size(); ++i) problem.a[i] *= 0x1p-60;
  for (int64_t i = 0; large_scales && i < problem.source.meta().n * problem.source.meta().groups; ++i)
    problem.set_scale(i, 0x1p122, 0);
  for (size_t i = 0; below && i < problem.bias.size(); ++i) problem.bias[i] = -1.5 * static_cast<double>(i + 1);
  if (below) std::fill(problem.a.begin(), problem.a.end(), 0.0);
  if (mutation.far_below()) std::fill(problem.bias.begin(), problem.bias.end(), -std::numeric_limits<double>::infinity());
  std::vector<uint8_t>& scales = problem.source.all().scales;
  const bool all_low = mutation.what == Mutation::unpack && s.format == MARLIN_FORMAT_MXFP4;
  for (size_t i = 0; all_low && i < scales.size(); ++i) scales[i] = static_cast<uint8_t>(i % 100);  // exponents from 0 on
  if (mutation.what == Mutation::low_scales)  // each row has one of 0 and large ones
    for (size_t i = 0; i < scales.size(); ++i) scales[i] = i % 5 == 0 ? 0 : 150;
  if (mutation.what == Mutation::nan_scale) scales[7] = 255;
  if (mutation.what == Mutation::nan_code) problem.source.all().codes[7] = 0xff;
  return problem;
}

testing::AssertionResult is_right(const Mutation& mutation, Problem& problem, const Setting& setting) {
  if (mutation.what == Mutation::unpack) return problem.check_unpack(MARLIN_F32, {}, setting);
  if (const auto ran = problem.run(setting); !ran) return ran;
  if (const auto right = problem.check(); !right) return right;
  for (int64_t m = 0; mutation.far_below() && m < problem.spec.m; ++m)
    for (int64_t n = 0; n < problem.columns(); ++n)
      if (problem.c_at(m, n) != 0 || !std::signbit(problem.c_at(m, n)))
        return testing::AssertionFailure() << problem.c_at(m, n) << " is not -0";
  // The bound of products is one of the argument. Of an exact one, the function has a few roundings more than its exp.
  for (size_t n = 0; mutation.what == Mutation::silu_below && n < problem.bias.size(); ++n) {
    const double exact = problem.bias[n] / (1 + std::exp(-problem.bias[n]));
    if (const double c = problem.c_at(0, static_cast<int64_t>(n)); std::fabs(c - exact) > 16 * 0x1p-24 * std::fabs(exact))
      return testing::AssertionFailure() << c << " is not " << exact;
  }
  return testing::AssertionSuccess();
}

}  // namespace shaders
