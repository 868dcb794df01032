// Every kind of code a kernel decodes, once, with the scales its files have: for tests that vary something else.
#pragma once

#include <iterator>
#include <string_view>

#include "campaigns.h"
#include "trial.h"
#include "unit/under_sanitizer.h"

namespace trial {

inline constexpr Kind kKinds[] = {
    {"int4", MARLIN_FORMAT_INT4, ZeroKind::none, ScaleType::f16, false, ScaleType::f16, 128},
    {"int4_zeros", MARLIN_FORMAT_INT4, ZeroKind::integer, ScaleType::f16, false, ScaleType::f16, 64},
    {"int4_additive", MARLIN_FORMAT_INT4, ZeroKind::additive, ScaleType::f16, false, ScaleType::f16, 32},
    {"fp4", MARLIN_FORMAT_FP4, ZeroKind::none, ScaleType::bf16, false, ScaleType::f16, 32},
    {"mxfp4", MARLIN_FORMAT_MXFP4, ZeroKind::none, ScaleType::e8m0, false, ScaleType::f16, 32},
    {"nvfp4", MARLIN_FORMAT_NVFP4, ZeroKind::none, ScaleType::e4m3, false, ScaleType::f16, 16, Tensor::multiply},
    {"int8", MARLIN_FORMAT_INT8, ZeroKind::none, ScaleType::f16, false, ScaleType::f16, 32},
    {"int8_additive", MARLIN_FORMAT_INT8, ZeroKind::additive, ScaleType::f32, false, ScaleType::f32, 64},
    {"int2_additive", MARLIN_FORMAT_INT2, ZeroKind::additive, ScaleType::f16, false, ScaleType::f16, 64},
    {"int3", MARLIN_FORMAT_INT3, ZeroKind::none, ScaleType::bf16, false, ScaleType::f16, 32},
    {"int3_zeros", MARLIN_FORMAT_INT3, ZeroKind::integer, ScaleType::f16, false, ScaleType::f16, 128},
    {"int5_zeros", MARLIN_FORMAT_INT5, ZeroKind::integer, ScaleType::f16, false, ScaleType::f16, 32},
    {"int5_additive", MARLIN_FORMAT_INT5, ZeroKind::additive, ScaleType::f16, false, ScaleType::f16, 32},
    {"int6", MARLIN_FORMAT_INT6, ZeroKind::none, ScaleType::f32, false, ScaleType::f16, 16},
    {"uint8", MARLIN_FORMAT_UINT8, ZeroKind::none, ScaleType::f16, false, ScaleType::f16, 32},
    {"uint8_zeros", MARLIN_FORMAT_UINT8, ZeroKind::integer, ScaleType::f16, false, ScaleType::f16, 128},
    {"uint8_additive", MARLIN_FORMAT_UINT8, ZeroKind::additive, ScaleType::bf16, false, ScaleType::bf16, 64},
    {"fp8", MARLIN_FORMAT_FP8, ZeroKind::none, ScaleType::f32, false, ScaleType::f16, 128},
    {"mxfp8", MARLIN_FORMAT_FP8, ZeroKind::none, ScaleType::e8m0, false, ScaleType::f16, 32},
    {"nf4", MARLIN_FORMAT_NF4, ZeroKind::none, ScaleType::f32, false, ScaleType::f16, 64},
    {"iq4", MARLIN_FORMAT_IQ4, ZeroKind::none, ScaleType::f16, false, ScaleType::f16, 32},
    {"int4_sparse", MARLIN_FORMAT_INT4, ZeroKind::none, ScaleType::f16, true, ScaleType::f16, 128},
    {"int4_zeros_sparse", MARLIN_FORMAT_INT4, ZeroKind::integer, ScaleType::f16, true, ScaleType::f16, 64},
    {"int4_additive_sparse", MARLIN_FORMAT_INT4, ZeroKind::additive, ScaleType::f16, true, ScaleType::f16, 32},
    {"fp4_sparse", MARLIN_FORMAT_FP4, ZeroKind::none, ScaleType::bf16, true, ScaleType::f16, 32},
    {"mxfp4_sparse", MARLIN_FORMAT_MXFP4, ZeroKind::none, ScaleType::e8m0, true, ScaleType::f16, 32},
    {"nvfp4_sparse", MARLIN_FORMAT_NVFP4, ZeroKind::none, ScaleType::e4m3, true, ScaleType::f16, 16, Tensor::multiply},
};
inline constexpr int kKindCount = sizeof kKinds / sizeof kKinds[0];

/// Two kinds for each kernel of a GPU that decodes codes, one of an even and one of an odd number. The other kinds differ from
/// these in what the kernel is told of the code, the scale or the zero.
inline constexpr std::string_view kStandingForTheirKernel[] = {
    "int4",       "int4_zeros",  "fp4", "mxfp4", "int8",        "int8_additive",
    "int3",       "int3_zeros",  "iq4", "nf4",   "int4_sparse", "int4_zeros_sparse",
    "fp4_sparse", "mxfp4_sparse"};
constexpr bool stands_for_its_kernel(const Kind& kind) {
  for (const std::string_view name : kStandingForTheirKernel)
    if (kind.name == name) return true;
  return false;
}
constexpr size_t count_standing() {
  size_t count = 0;
  for (const Kind& kind : kKinds) count += stands_for_its_kernel(kind);
  return count;
}
static_assert(count_standing() == std::size(kStandingForTheirKernel), "each of these names is the name of a kind");

inline Case case_of(const Kind& kind, marlin_compute compute, int64_t m, int64_t n, int64_t k) {
  Case c = problem::case_of(kind, m, n, k);
  c.compute = compute;
  c.a_type = MARLIN_BF16;  // what both float forms of activations serve
  return c;
}

/// GGUF's K-quant of a format; K is rounded up to whole super-blocks.
inline Case k_quant_case(marlin_format format, marlin_compute compute, int64_t m, int64_t n, int64_t k) {
  return case_of(k_quant_of(format), compute, m, n, (k + kSuperBlock - 1) / kSuperBlock * kSuperBlock);
}

/// Why a test of threads leaves out the kind of this number, if it does. Kinds differ in decoding and share tasks and scratch,
/// so under ThreadSanitizer a fourth of them is enough for a campaign that is not long.
inline std::string without_threads(int kind) {
#if defined(MARLIN_UNDER_TSAN)
  if (kind % 4 != 0 && !whole_campaigns()) return "one kind of four has threads under ThreadSanitizer";
#endif
  (void)kind;
  return "";
}

}  // namespace trial
