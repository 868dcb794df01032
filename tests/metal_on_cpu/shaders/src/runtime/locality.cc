#include "locality.h"

#include <algorithm>

namespace metal_on_cpu {

Locality::Access& Locality::open(uint32_t thread, uintptr_t pc, int space, uint64_t offset, bool write) {
  const uint64_t chunk = offset / 16;
  for (Recent& r : recent_[thread]) {
    if (r.space != space || r.write != write || r.chunk != chunk || r.pieces == 0 || r.pieces == r.pcs.size()) continue;
    if (std::find(r.pcs.begin(), r.pcs.begin() + r.pieces, pc) != r.pcs.begin() + r.pieces) continue;
    r.pcs[r.pieces++] = pc;
    return instructions_[r.instruction].accesses[r.nth];
  }
  const uint64_t key = (pc << 5) | thread / 32;
  Instruction& instruction = instructions_[key];
  const uint32_t nth = instruction.executed[thread % 32]++;
  if (instruction.accesses.size() <= nth) instruction.accesses.resize(nth + 1);
  instruction.accesses[nth].space = space;
  Recent& r = recent_[thread][turn_[thread]++ % 8];
  r.chunk = chunk, r.space = space, r.write = write, r.pieces = 1, r.pcs[0] = pc, r.instruction = key, r.nth = nth;
  return instruction.accesses[nth];
}

void Locality::access(uint32_t thread, uintptr_t pc, int space, uint64_t offset, uint32_t bytes, bool write) {
  Access& access = open(thread, pc, space, offset, write);
  const uint64_t unit = space == kThreadgroupSpace ? 4 : 64;
  for (uint64_t u = offset / unit; u <= (offset + bytes - 1) / unit; ++u) {
    if (std::find(access.units.rbegin(), access.units.rend(), u) == access.units.rend()) access.units.push_back(u);
  }
}

void Locality::end_group() {
  for (const auto& [key, instruction] : instructions_) {
    for (const Access& access : instruction.accesses) {
      LocalityCounts& counts = counts_[access.space];
      counts.accesses++;
      if (access.space != kThreadgroupSpace) {
        counts.lines += access.units.size();
        continue;
      }
      std::array<uint32_t, 32> banks{};
      for (const uint64_t word : access.units) banks[word % 32]++;
      counts.conflicts += *std::max_element(banks.begin(), banks.end()) - 1;
    }
  }
  instructions_.clear();
  for (auto& lane : recent_) {
    for (Recent& r : lane) r.pieces = 0;
  }
}

}  // namespace metal_on_cpu
