#include "locality.h"

#include <algorithm>

namespace metal_on_cpu {

Locality::Access& Locality::open(uint32_t thread, uintptr_t pc, int buffer, uint64_t offset, bool write) {
  const uint64_t chunk = offset / 16;
  for (Recent& r : recent_[thread]) {
    if (r.buffer != buffer || r.write != write || r.chunk != chunk || r.pieces == 0 || r.pieces == r.pcs.size()) continue;
    if (std::find(r.pcs.begin(), r.pcs.begin() + r.pieces, pc) != r.pcs.begin() + r.pieces) continue;
    r.pcs[r.pieces++] = pc;
    return instructions_[r.instruction].accesses[r.nth];
  }
  const uint64_t key = (pc << 5) | thread / 32;
  Instruction& instruction = instructions_[key];
  const uint32_t nth = instruction.executed[thread % 32]++;
  if (instruction.accesses.size() <= nth) instruction.accesses.resize(nth + 1);
  instruction.accesses[nth].buffer = buffer;
  Recent& r = recent_[thread][turn_[thread]++ % 8];
  r.chunk = chunk, r.buffer = buffer, r.write = write, r.pieces = 1, r.pcs[0] = pc, r.instruction = key, r.nth = nth;
  return instruction.accesses[nth];
}

void Locality::access(uint32_t thread, uintptr_t pc, int buffer, uint64_t offset, uint32_t bytes, bool write) {
  Access& access = open(thread, pc, buffer, offset, write);
  for (uint64_t line = offset / 64; line <= (offset + bytes - 1) / 64; ++line) {
    if (std::find(access.lines.rbegin(), access.lines.rend(), line) == access.lines.rend()) access.lines.push_back(line);
  }
}

void Locality::end_group() {
  for (const auto& [key, instruction] : instructions_) {
    for (const Access& access : instruction.accesses) lines_[access.buffer] += access.lines.size();
  }
  instructions_.clear();
  for (auto& lane : recent_) {
    for (Recent& r : lane) r.pieces = 0;
  }
}

}  // namespace metal_on_cpu
