#include "cases_of_forms.h"

#include <algorithm>
#include <iterator>
#include <random>
#include <type_traits>

namespace cuda_test {

using trial::ScaleType;
using trial::ZeroKind;

trial::Case case_of_form(uint32_t i) {
  std::mt19937 random(i);
  const auto one_of = [&](auto... values) {
    const std::common_type_t<decltype(values)...> all[] = {values...};
    return all[random() % std::size(all)];
  };
  trial::Case c;
  c.seed = i + 1;
  c.format = one_of(MARLIN_FORMAT_MXFP4, MARLIN_FORMAT_NVFP4, MARLIN_FORMAT_INT4, MARLIN_FORMAT_INT4, MARLIN_FORMAT_INT8,
                    MARLIN_FORMAT_FP8);
  c.group = c.format == MARLIN_FORMAT_NVFP4 ? 16 : c.format == MARLIN_FORMAT_MXFP4 ? 32 : one_of(128, 256, 0, 32, 64);
  c.scale_type = c.format == MARLIN_FORMAT_NVFP4   ? ScaleType::e4m3
                 : c.format == MARLIN_FORMAT_MXFP4 ? ScaleType::e8m0
                                                   : ScaleType::f16;
  if (c.format == MARLIN_FORMAT_FP8) {
    c.group = one_of(128, 256, 0);
    c.scale_type = ScaleType::f32;
  }
  const bool is_short = c.group == 32 || c.group == 64;
  if (c.format == MARLIN_FORMAT_INT4)
    c.zeros = one_of(ZeroKind::none, ZeroKind::integer, is_short ? ZeroKind::additive : ZeroKind::none);
  c.zero_type = ScaleType::f16;
  if (c.format == MARLIN_FORMAT_INT8) {
    // Q8_0, long groups, and Q6_K and Q5_K on a GPU.
    c.group = one_of(32, 128, 256, 0, 16, 32);
    const bool is_q5_k = c.group == 32 && random() % 3 == 0;
    if (c.group == 16 || is_q5_k) c.scale_type = c.zero_type = ScaleType::f32;
    if (is_q5_k) c.zeros = ZeroKind::additive;
  }
  // Q4_K on a GPU.
  if (c.format == MARLIN_FORMAT_INT4 && c.group == 32 && c.zeros == ZeroKind::additive && random() % 2 == 0)
    c.scale_type = c.zero_type = ScaleType::f32;
  c.a_type = one_of(MARLIN_F16, MARLIN_BF16);
  c.c_type = one_of(MARLIN_F16, MARLIN_BF16, MARLIN_F32);
  c.bias_type = random() % 3 == 0 ? MARLIN_F32 : marlin_dtype{0};
  c.epilogue = one_of(MARLIN_EPILOGUE_NONE, MARLIN_EPILOGUE_NONE, MARLIN_EPILOGUE_SILU, MARLIN_EPILOGUE_SWIGLU,
                      MARLIN_EPILOGUE_SWIGLU_OAI, MARLIN_EPILOGUE_SITU);
  c.interleaved = c.epilogue >= MARLIN_EPILOGUE_SWIGLU && random() % 2 == 0;
  c.accumulate = random() % 4 == 0;
  c.strides = one_of(trial::Strides::contiguous, trial::Strides::contiguous, trial::Strides::padded, trial::Strides::odd);
  c.together = random() % 8 == 0;
  c.m = one_of(1, 2, 3, 7, 8, 9, 16, 17, 31, 33, 64, 65, 100, 128, 130, 257);
  c.n = 2 * one_of(1, 4, 16, 17, 32, 64, 96, 100, 129, 288);
  c.k = one_of(32, 64, 100, 128, 200, 256, 512, 1000, 1024, 2048, 3072);
  if (c.m > 64 && c.n > 256) c.k = std::min<int64_t>(c.k, 1000);
  if (c.format == MARLIN_FORMAT_INT4 || c.format == MARLIN_FORMAT_INT8 || c.format == MARLIN_FORMAT_FP8)
    c.k = std::max<int64_t>(c.k, 128);  // shorter rows have groups of their length
  if (c.group > 0) c.k = (c.k + c.group - 1) / c.group * c.group;
  return c;
}

trial::Case sparse_case_of_form(uint32_t i) {
  trial::Case c = case_of_form(i);
  if (c.format == MARLIN_FORMAT_INT8 || c.format == MARLIN_FORMAT_FP8) {
    c.format = MARLIN_FORMAT_INT4;
    c.group = c.group == 16 ? 64 : c.group;
    c.k = c.group > 0 ? (c.k + c.group - 1) / c.group * c.group : c.k;
  }
  c.zeros = ZeroKind::none;
  if (c.format == MARLIN_FORMAT_INT4) c.scale_type = ScaleType::f16;
  c.sparse = true;
  return c;
}

trial::Case fp8_case(uint32_t i) {
  trial::Case c = case_of_form(i);
  std::mt19937 random(i + 77);
  const auto one_of = [&](auto... values) {
    const std::common_type_t<decltype(values)...> all[] = {values...};
    return all[random() % std::size(all)];
  };
  c.compute = MARLIN_COMPUTE_FP8;
  c.format = one_of(MARLIN_FORMAT_MXFP4, MARLIN_FORMAT_NVFP4, MARLIN_FORMAT_FP4, MARLIN_FORMAT_FP8, MARLIN_FORMAT_FP8);
  c.group = c.format == MARLIN_FORMAT_NVFP4 ? 16 : c.format == MARLIN_FORMAT_MXFP4 ? 32 : one_of(32, 128, 256);
  c.scale_type = c.format == MARLIN_FORMAT_NVFP4   ? ScaleType::e4m3
                 : c.format == MARLIN_FORMAT_MXFP4 ? ScaleType::e8m0
                 : c.format == MARLIN_FORMAT_FP8   ? one_of(ScaleType::f32, ScaleType::f32, ScaleType::bf16)
                                                   : ScaleType::f16;
  c.zeros = ZeroKind::none;
  c.a_type = one_of(MARLIN_F16, MARLIN_BF16, MARLIN_F32);
  c.tensor = one_of(trial::Tensor::none, trial::Tensor::none, trial::Tensor::multiply, trial::Tensor::divide);
  c.k = (c.k + c.group - 1) / c.group * c.group;
  c.sparse = c.k % 4 == 0 && c.format != MARLIN_FORMAT_FP8 && random() % 8 == 0;
  if (!c.sparse && c.k > c.group && random() % 6 == 0) c.order = trial::Order::shuffled;
  return c;
}

}  // namespace cuda_test
