// Asking memory for what a walk over packed weights will need.
#pragma once

#include <cstdint>

#include "base/bits.h"

namespace metal_marlin::cpu {

/// How far ahead of itself a walk over packed weights fetches: more than the latency of memory at a core's share of the
/// bandwidth, in whole superblocks: scales lie behind the codes but are needed before them, and only so do their lines come as
/// early as the others.
constexpr int64_t fetch_distance(int64_t super_bytes) { return round_up(16384, super_bytes); }

/// Into L2: the few misses that L1 can have outstanding (24 on Zen 4, that is 15 GB/s at 100 ns) do not fill the memory's
/// bandwidth.
[[gnu::always_inline]] inline void fetch_line(const uint8_t* p) { __builtin_prefetch(p, 0, 2); }
[[gnu::always_inline]] inline void fetch_lines(const uint8_t* p, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += 64) fetch_line(p + i);
}

}  // namespace metal_marlin::cpu
