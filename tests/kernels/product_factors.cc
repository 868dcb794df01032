#include "product_factors.h"

#include <random>
#include <utility>

namespace trial {
namespace {

constexpr int64_t kGroups[] = {16, 32, 64, 128, 256, 0};
constexpr marlin_dtype kFloats[] = {MARLIN_F32, MARLIN_F16, MARLIN_BF16, 0};
constexpr ScaleType kScales[] = {ScaleType::f32, ScaleType::f16, ScaleType::bf16};
constexpr int kOwnScale = 3;  // E8M0 or E4M3

bool has_sparse_form(marlin_format format) {
  return oracle::code_bits(format) == 4 && format != MARLIN_FORMAT_IQ4 && format != MARLIN_FORMAT_NF4;
}

}  // namespace

const std::vector<int>& factor_levels() {
  static const std::vector<int> all = {kFormatCount, 6, 4, 3, 4, 2, 3, 3, 4, 8, 2, 3, 5, 4, 5, 3, 2, 2, 2};
  return all;
}

bool allowed(const covering::Row& r) {
  const auto fixed = [&](Factor f) { return r[f] >= 0; };
  if (fixed(kFormat)) {
    const Format f = kFormats[r[kFormat]];
    const bool mx = f.format == MARLIN_FORMAT_MXFP4, nv = f.format == MARLIN_FORMAT_NVFP4;
    if (fixed(kGroup) && ((mx && kGroups[r[kGroup]] != 32) || (nv && kGroups[r[kGroup]] != 16))) return false;
    if (r[kScale] == kOwnScale && !mx && !nv) return false;
    if ((f.zeros == ZeroKind::additive || f.format == MARLIN_FORMAT_NF4 || f.k_quant) && r[kTensor] > 0) return false;
    const auto is_own = [&] {
      return (!fixed(kGroup) || kGroups[r[kGroup]] == k_quant_of(f.format).group) &&
             (!fixed(kScale) || kFloats[r[kScale]] == MARLIN_F16) && r[kOrder] <= 0 && r[kSparse] <= 0;
    };
    if (f.k_quant && !is_own()) return false;
  }
  if (r[kSparse] == 1 && r[kOrder] > 0) return false;  // sparse weights are in order, and
  if (r[kSparse] == 1 && fixed(kFormat) && !has_sparse_form(kFormats[r[kFormat]].format)) return false;
  if (fixed(kGroup) && kGroups[r[kGroup]] == 0 && r[kOrder] > 0) return false;  // one group has no order
  return true;
}

Case case_of(const covering::Row& r, uint32_t seed) {
  std::mt19937 random(seed * 2654435761u + 1);
  const auto between = [&](int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random() % static_cast<uint32_t>(high - low + 1));
  };
  const Format f = kFormats[r[kFormat]];
  Case c = problem::case_of(f.k_quant ? k_quant_of(f.format) : Kind{.format = f.format, .zeros = f.zeros}, 1, 1, 1);
  c.seed = seed;
  if (seed % 4 == 0) c.range = problem::Range::wide;
  c.group = kGroups[r[kGroup]];
  const ScaleType own = c.format == MARLIN_FORMAT_MXFP4 ? ScaleType::e8m0 : ScaleType::e4m3;
  if (!f.k_quant) c.scale_type = r[kScale] != kOwnScale ? kScales[r[kScale]] : own;
  c.order = static_cast<Order>(r[kOrder]);
  c.tensor = static_cast<Tensor>(r[kTensor]);
  c.compute = r[kCompute] == 0 ? MARLIN_COMPUTE_DEFAULT : MARLIN_COMPUTE_INT8;
  c.a_type = kFloats[r[kA]];
  c.c_type = kFloats[r[kC]];
  c.bias_type = kFloats[3 - r[kBias]];
  c.epilogue = static_cast<marlin_epilogue>(r[kEpilogue]);
  c.accumulate = r[kAccumulate] == 1;
  c.strides = static_cast<Strides>(r[kStrides]);
  c.threads = static_cast<uint32_t>(r[kThreads] + 1);
  c.interleaved = r[kInterleaved] == 1;
  c.together = r[kTogether] == 1;
  constexpr int64_t kRows[][2] = {{1, 1}, {2, 4}, {5, 16}, {17, 40}, {70, 90}};
  c.m = between(kRows[r[kM]][0], kRows[r[kM]][1]);
  c.n = r[kN] == 0 ? 1 : r[kN] == 1 ? between(2, 63) : r[kN] == 2 ? 64 * between(1, 2) : between(65, 200);
  c.k = r[kK] == 0   ? 1
        : r[kK] == 1 ? between(2, 31)
        : r[kK] == 2 ? between(16, 63) * 2 + 1
        : r[kK] == 3 ? 128 * between(1, 2)
                     : between(129, 400);
  if (c.compute == MARLIN_COMPUTE_INT8) c.activation_group = (const int64_t[]){0, 64, 128, 1 << 20}[random() % 4];
  c.sparse = r[kSparse] == 1;
  if (c.sparse) c.k = (c.k + 3) / 4 * 4;
  if (c.k_quant()) c.k = (c.k + kSuperBlock - 1) / kSuperBlock * kSuperBlock;
  // Gate and up come in pairs.
  if ((c.interleaved || c.epilogue >= MARLIN_EPILOGUE_SWIGLU) && c.n % 2 != 0) ++c.n;
  if (!f.k_quant) c.zero_type = kScales[random() % 3];
  return c;
}

}  // namespace trial
