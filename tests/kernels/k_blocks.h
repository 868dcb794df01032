// GGUF's K-quants, written from the definitions in docs/formats.md: super-blocks of 256 elements, whose groups have small
// integers for scales and minima, times float16 factors of the super-block.
#pragma once

#include <cstdint>
#include <vector>

#include "problem/case.h"

namespace trial {

inline constexpr int64_t kSuperBlock = 256;

/// The format's K-quant: Q2_K to Q6_K are INT2 to INT6. Q2_K, Q4_K and Q5_K have minima.
problem::Kind k_quant_of(marlin_format format);
int64_t k_block_bytes(marlin_format format);
/// The k_block_bytes() of the file that hold super-block `block` of a row of such weights.
std::vector<uint8_t> k_block(const metal_marlin::MemorySource& source, int64_t row, int64_t block);

}  // namespace trial
