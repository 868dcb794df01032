// AutoAWQ "gemv": words of eight codes along K, [N, K / 8], and words of eight zeros, [N, groups /
// 8]. AutoAWQ "gemv_fast" and llm-awq: 16-bit units of four codes, four interleaved rows of W,
// scales and additive zeros [groups, N]. Both layouts pad the groups.
#pragma once

#include <cstdint>
#include <optional>

namespace metal_marlin {

/// The number of groups of a row, a multiple of 8, to which both layouts pad with zeros. Nothing
/// for a group size that their writer does not support.
std::optional<int64_t> awq_gemv_groups(int64_t k, int64_t group_size);

}  // namespace metal_marlin
