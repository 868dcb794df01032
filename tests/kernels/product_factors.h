// Everything a caller of a product can choose, as factors of a covering array.
#pragma once

#include <cstdint>
#include <vector>

#include "covering.h"
#include "trial.h"

namespace trial {

enum Factor {
  kFormat,
  kGroup,
  kScale,
  kOrder,
  kTensor,
  kCompute,
  kA,
  kC,
  kBias,
  kEpilogue,
  kAccumulate,
  kStrides,
  kM,
  kN,
  kK,
  kThreads,
  kInterleaved,
  kSparse,
  kTogether,
  kFactors
};

struct Format {
  marlin_format format;
  ZeroKind zeros;
  bool k_quant = false;
};
inline constexpr Format kFormats[] = {{MARLIN_FORMAT_INT4, ZeroKind::none},
                                      {MARLIN_FORMAT_INT4, ZeroKind::integer},
                                      {MARLIN_FORMAT_INT4, ZeroKind::additive},
                                      {MARLIN_FORMAT_FP4, ZeroKind::none},
                                      {MARLIN_FORMAT_MXFP4, ZeroKind::none},
                                      {MARLIN_FORMAT_NVFP4, ZeroKind::none},
                                      {MARLIN_FORMAT_INT8, ZeroKind::none},
                                      {MARLIN_FORMAT_INT8, ZeroKind::additive},
                                      {MARLIN_FORMAT_INT2, ZeroKind::integer},
                                      {MARLIN_FORMAT_INT3, ZeroKind::additive},
                                      {MARLIN_FORMAT_INT5, ZeroKind::none},
                                      {MARLIN_FORMAT_INT6, ZeroKind::integer},
                                      {MARLIN_FORMAT_IQ4, ZeroKind::none},
                                      {MARLIN_FORMAT_UINT8, ZeroKind::integer},
                                      {MARLIN_FORMAT_FP8, ZeroKind::none},
                                      {MARLIN_FORMAT_NF4, ZeroKind::none},
                                      {MARLIN_FORMAT_INT4, ZeroKind::additive, true},
                                      {MARLIN_FORMAT_INT6, ZeroKind::none, true}};
inline constexpr const char* kFormatNames[] = {"int4", "int4_zeros",    "int4_additive", "fp4",           "mxfp4", "nvfp4",
                                               "int8", "int8_additive", "int2_zeros",    "int3_additive", "int5",  "int6_zeros",
                                               "iq4",  "uint8_zeros",   "fp8",           "nf4",           "q4_k",  "q6_k"};
inline constexpr int kFormatCount = sizeof kFormats / sizeof kFormats[0];

/// The number of levels of each factor.
const std::vector<int>& factor_levels();
/// A level that is not chosen yet (-1) forbids nothing.
bool allowed(const covering::Row& row);
/// Shapes and numbers inside the levels follow from the seed.
Case case_of(const covering::Row& row, uint32_t seed);

}  // namespace trial
