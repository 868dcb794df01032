// Asking memory for what a walk over packed weights will need.
#pragma once

#include <cstdint>

namespace metal_marlin::cpu {

/// How far ahead of itself a walk over packed weights fetches. Scales lie behind their codes but
/// are needed before them, so it is 10 KB or more beyond a superblock: more than the latency of
/// memory at a core's share of the bandwidth. And it is half a page off a multiple of 4 KB: near
/// one, what is fetched holds up what is read (Zen 4: 16.5 KB took 1.2 times as long as 18 KB).
constexpr int64_t fetch_distance(int64_t super_bytes) {
  return (super_bytes + 12288) / 4096 * 4096 + 2048;
}

/// Into L2: the few misses that L1 can have outstanding (24 on Zen 4, that is 15 GB/s at 100 ns) do
/// not fill the memory's bandwidth.
[[gnu::always_inline]] inline void fetch_line(const uint8_t* p) { __builtin_prefetch(p, 0, 2); }
[[gnu::always_inline]] inline void fetch_lines(const uint8_t* p, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += 64) fetch_line(p + i);
}

}  // namespace metal_marlin::cpu
