// Prefetches the packed weights that a kernel will read next.
#pragma once

#include <cstdint>

namespace metal_marlin::cpu {

/// The distance in bytes between reading and prefetching of packed weights. Scales lie after their
/// codes but are needed before them, so the distance is at least 10 KB beyond a superblock. This is
/// more than the latency of memory at a core's share of the bandwidth. The distance is half a page
/// off a multiple of 4 KB, because near such a multiple prefetches delay loads (Zen 4: 16.5 KB took
/// 1.2 times as long as 18 KB).
constexpr int64_t fetch_distance(int64_t super_bytes) {
  return (super_bytes + 12288) / 4096 * 4096 + 2048;
}

/// A second chance for lines that were prefetched far ahead: the processor drops prefetches while
/// too many are on their way, and a panel is multiplied faster than memory delivers it. It makes
/// INT8 compute of one row 1.1 times as fast on Zen 4 (one thread), and of 4-bit codes 1.1 to 1.2
/// times on Zen 3 (two threads), where 8-bit codes gain nothing.
inline constexpr int64_t kSecondChance = 10240;

/// The prefetch distances of a block of codes; 0: nothing is prefetched that is not read anyway.
struct Ahead {
  int64_t far, near;
};

/// Fetches into L2, because the few outstanding misses of L1 (24 on Zen 4, which is 15 GB/s at 100
/// ns) do not fill the bandwidth of memory.
[[gnu::always_inline]] inline void fetch_line(const uint8_t* p) { __builtin_prefetch(p, 0, 2); }
[[gnu::always_inline]] inline void fetch_lines(const uint8_t* p, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += 64) fetch_line(p + i);
}

}  // namespace metal_marlin::cpu
