// What the race multiplies: shapes of models, random weights in several formats, and random 16-bit numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "metal_marlin/metal_marlin.hpp"
#include "oracle.h"

namespace timing {

struct Shape {
  const char* name;
  int64_t k, n;
  int64_t most_rows;  ///< of A that a model gives it
};
inline constexpr Shape kShapes[] = {{"fc1", 4096, 11776, 4096}, {"fc2", 11776, 4096, 4096},   {"square", 4096, 4096, 4096},
                                    {"wide", 8192, 8192, 4096}, {"large", 8192, 28672, 4096}, {"lm_head", 2880, 201088, 8}};

struct Format {
  const char* name;
  marlin_format format;
  int64_t group;
  marlin_dtype scales;
  bool sparse = false;  ///< 2:4, pruned when it is packed
  bool zeros = false;   ///< additive, of the type of the scales
};
inline constexpr Format kFormats[] = {{"mxfp4", MARLIN_MXFP4, 32, MARLIN_E8M0},
                                      {"nvfp4", MARLIN_NVFP4, 16, MARLIN_E4M3},
                                      {"int4", MARLIN_INT4, 128, MARLIN_F16},
                                      {"q4_0", MARLIN_INT4, 32, MARLIN_F16},
                                      {"q4_1", MARLIN_INT4, 32, MARLIN_F16, false, true},
                                      {"q4_k", MARLIN_INT4, 32, MARLIN_F32, false, true},
                                      {"int4-g64", MARLIN_INT4, 64, MARLIN_F16},
                                      {"mlx", MARLIN_INT4, 64, MARLIN_BF16, false, true},
                                      {"q8_0", MARLIN_INT8, 32, MARLIN_F16},
                                      {"int8", MARLIN_INT8, 128, MARLIN_F16},
                                      {"int4-row", MARLIN_INT4, int64_t{1} << 30, MARLIN_F16},
                                      {"int8-row", MARLIN_INT8, int64_t{1} << 30, MARLIN_F16},
                                      {"q6_k", MARLIN_INT8, 16, MARLIN_F32},
                                      {"q5_k", MARLIN_INT8, 32, MARLIN_F32, false, true},
                                      {"mlx8", MARLIN_UINT8, 64, MARLIN_BF16, false, true},
                                      {"fp8", MARLIN_FP8, 128, MARLIN_F32},
                                      {"nf4", MARLIN_NF4, 64, MARLIN_F32},
                                      {"bf16", MARLIN_BFLOAT16, int64_t{1} << 30, MARLIN_E8M0},
                                      {"mxfp4-2:4", MARLIN_MXFP4, 32, MARLIN_E8M0, true},
                                      {"int4-2:4", MARLIN_INT4, 128, MARLIN_F16, true}};

inline constexpr size_t kElementBytes = 2;  // of activations, of C, and of cuBLAS's weights

int64_t bits_of(const Format& format);  // of a code
/// Codes and scales.
size_t packed_bytes(const Shape& shape, const Format& format);
size_t dense_bytes(const Shape& shape);
/// How many weights of so many bytes take turns: what is read is never in a cache, and a graph has several products.
size_t copies_of(size_t bytes);

/// Of C: half of N with two inputs, which are gate and up rows of W.
int64_t columns_of(int64_t n, marlin_epilogue epilogue);

/// A [M, K] of a 16-bit type, in memory of the host.
struct Activations {
  marlin_dtype dtype;
  const uint16_t* values;
};

/// Numbers from -1 to 1 of a 16-bit type.
std::vector<uint16_t> random_numbers(size_t count, marlin_dtype dtype, uint32_t seed);

/// Random weights. Copies have the same codes, each from another place on, and scales of their own.
class RandomWeights {
 public:
  explicit RandomWeights(std::span<const Shape* const> shapes);
  metal_marlin::weights pack(const metal_marlin::context& context, const Shape& shape, const Format& format, size_t copy) const;
  /// Copies from `first` on as the experts of one handle.
  metal_marlin::weights pack_experts(const metal_marlin::context& context, const Shape& shape, const Format& format,
                                     size_t first, int64_t count) const;
  /// Some rows, as the oracle takes them.
  oracle::Weights sample(const Shape& shape, const Format& format, size_t copy, std::span<const int64_t> rows) const;

 private:
  const uint8_t* codes_of(const Format& format, size_t copy) const;

  std::vector<uint8_t> codes_, fp8_;    // fp8_: codes that are no NaN
  mutable std::vector<uint16_t> bf16_;  // when they are asked for
};

}  // namespace timing
