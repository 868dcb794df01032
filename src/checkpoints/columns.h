// Scales and zeros that a file keeps as [groups, N], turned into the [N, groups] of a Stripe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace metal_marlin {

/// out[n - first][g] = from[g][n] for n in [first, first + count); elements of `size` 1, 2 or 4 bytes, rows of `stride`
/// elements.
void gather_columns(const std::byte* from, int64_t stride, size_t size, int64_t groups, int64_t first, int64_t count,
                    std::vector<uint8_t>& out);

/// The same for nibbles in words of 32 bits: from is [groups][words], column n is nibble nibble_of[n % 8] of word n / 8. `plus`
/// is added to each.
void gather_packed_columns(const std::byte* from, int64_t words, const uint8_t (&nibble_of)[8], uint8_t plus, int64_t groups,
                           int64_t first, int64_t count, std::vector<uint8_t>& out);

}  // namespace metal_marlin
