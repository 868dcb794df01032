// AutoAWQ "gemv": words of eight codes along K, [N, K / 8], zeros likewise, [N, groups / 8].
// AutoAWQ "gemv_fast" and llm-awq: 16-bit units of four codes, four rows of W woven into one,
// scales and additive zeros [groups, N]. Both pad the groups.
#pragma once

#include <cstdint>
#include <optional>

namespace metal_marlin {

/// Groups of a row to which both pad, with zeros: a multiple of 8. Nothing for a group size that
/// their writer has not.
std::optional<int64_t> awq_gemv_groups(int64_t k, int64_t group_size);

}  // namespace metal_marlin
