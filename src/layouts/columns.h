// Turns scales and zeros that a file stores as [groups, N] into the [N, groups] of a Stripe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace metal_marlin {

/// out[n - first][g] = from[g][n] for n in [first, first + count); elements of `size` 1, 2 or 4
/// bytes, rows of `stride` elements.
void gather_columns(const std::byte* from, int64_t stride, size_t size, int64_t groups,
                    int64_t first, int64_t count, std::vector<uint8_t>& out);

/// Does the same for nibbles in words of 32 bits: `from` is [groups][words], and column n is nibble
/// nibble_of[n % 8] of word n / 8.
void gather_packed_columns(const std::byte* from, int64_t words, const uint8_t (&nibble_of)[8],
                           int64_t groups, int64_t first, int64_t count, std::vector<uint8_t>& out);

}  // namespace metal_marlin
