// Every kind of code a kernel decodes, once, with the scales its files have: for tests that vary something else.
#pragma once

#include <iterator>
#include <string_view>

#include "campaigns.h"
#include "trial.h"
#include "unit/under_sanitizer.h"

namespace trial {

struct Kind {
  const char* name;
  marlin_format format;
  Zeros zeros;
  int64_t group;
  marlin_dtype scale_type;
  Tensor tensor;
  bool sparse = false;
};

inline constexpr Kind kKinds[] = {
    {"int4", MARLIN_INT4, Zeros::none, 128, MARLIN_F16, Tensor::none},
    {"int4_zeros", MARLIN_INT4, Zeros::integer, 64, MARLIN_F16, Tensor::none},
    {"int4_additive", MARLIN_INT4, Zeros::additive, 32, MARLIN_F16, Tensor::none},
    {"fp4", MARLIN_FP4, Zeros::none, 32, MARLIN_BF16, Tensor::none},
    {"mxfp4", MARLIN_MXFP4, Zeros::none, 32, MARLIN_E8M0, Tensor::none},
    {"nvfp4", MARLIN_NVFP4, Zeros::none, 16, MARLIN_E4M3, Tensor::multiply},
    {"int8", MARLIN_INT8, Zeros::none, 32, MARLIN_F16, Tensor::none},
    {"int8_additive", MARLIN_INT8, Zeros::additive, 64, MARLIN_F32, Tensor::none},
    {"int2_additive", MARLIN_INT2, Zeros::additive, 64, MARLIN_F16, Tensor::none},
    {"int3", MARLIN_INT3, Zeros::none, 32, MARLIN_BF16, Tensor::none},
    {"int3_zeros", MARLIN_INT3, Zeros::integer, 128, MARLIN_F16, Tensor::none},
    {"int5_zeros", MARLIN_INT5, Zeros::integer, 32, MARLIN_F16, Tensor::none},
    {"int5_additive", MARLIN_INT5, Zeros::additive, 32, MARLIN_F16, Tensor::none},
    {"int6", MARLIN_INT6, Zeros::none, 16, MARLIN_F32, Tensor::none},
    {"uint8", MARLIN_UINT8, Zeros::none, 32, MARLIN_F16, Tensor::none},
    {"uint8_zeros", MARLIN_UINT8, Zeros::integer, 128, MARLIN_F16, Tensor::none},
    {"uint8_additive", MARLIN_UINT8, Zeros::additive, 64, MARLIN_BF16, Tensor::none},
    {"fp8", MARLIN_FP8, Zeros::none, 128, MARLIN_F32, Tensor::none},
    {"mxfp8", MARLIN_FP8, Zeros::none, 32, MARLIN_E8M0, Tensor::none},
    {"nf4", MARLIN_NF4, Zeros::none, 64, MARLIN_F32, Tensor::none},
    {"iq4", MARLIN_IQ4, Zeros::none, 32, MARLIN_F16, Tensor::none},
    {"int4_sparse", MARLIN_INT4, Zeros::none, 128, MARLIN_F16, Tensor::none, true},
    {"int4_zeros_sparse", MARLIN_INT4, Zeros::integer, 64, MARLIN_F16, Tensor::none, true},
    {"int4_additive_sparse", MARLIN_INT4, Zeros::additive, 32, MARLIN_F16, Tensor::none, true},
    {"fp4_sparse", MARLIN_FP4, Zeros::none, 32, MARLIN_BF16, Tensor::none, true},
    {"mxfp4_sparse", MARLIN_MXFP4, Zeros::none, 32, MARLIN_E8M0, Tensor::none, true},
    {"nvfp4_sparse", MARLIN_NVFP4, Zeros::none, 16, MARLIN_E4M3, Tensor::multiply, true},
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

/// K of sparse weights is rounded up to whole blocks of 4.
inline Case case_of(const Kind& kind, marlin_compute compute, int64_t m, int64_t n, int64_t k) {
  Case c;
  c.format = kind.format;
  c.zeros = kind.zeros;
  c.group = kind.group;
  c.scale_type = kind.scale_type;
  c.tensor = kind.tensor;
  c.sparse = kind.sparse;
  c.compute = compute;
  c.a_type = MARLIN_BF16;  // what both float forms of activations serve
  c.m = m;
  c.n = n;
  c.k = kind.sparse ? (k + 3) / 4 * 4 : k;
  return c;
}

/// GGUF's K-quant of a format; K is rounded up to whole super-blocks.
inline Case k_quant_case(marlin_format format, marlin_compute compute, int64_t m, int64_t n, int64_t k) {
  Case c;
  c.format = format;
  c.k_quant = true;
  c.zeros = has_minima(format) ? Zeros::additive : Zeros::none;
  c.group = k_group(format);
  c.compute = compute;
  c.a_type = MARLIN_BF16;
  c.m = m;
  c.n = n;
  c.k = (k + kSuperBlock - 1) / kSuperBlock * kSuperBlock;
  return c;
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
