#include "memory.h"

#include <algorithm>
#include <cinttypes>
#include <cstdint>
#include <cstdio>

namespace marlin_ggml {
namespace {

/// The number that a line of a file gives in this form; `otherwise` if there is none.
uint64_t number_in(const char* file, const char* form, uint64_t otherwise) {
  std::FILE* const lines = std::fopen(file, "re");
  if (lines == nullptr) return otherwise;
  char line[256];
  uint64_t found = otherwise;
  while (std::fgets(line, sizeof line, lines) != nullptr) {
    // A number that is too large is the largest. NOLINTNEXTLINE(clang-diagnostic-format-nonliteral)
    if (std::sscanf(line, form, &found) == 1) break;
  }
  std::fclose(lines);
  return found;
}

}  // namespace

HostMemory usable_memory(HostMemory memory) {
  // A container shows its own group there. "max" is no number.
  const uint64_t limit = number_in("/sys/fs/cgroup/memory.max", "%" SCNu64, UINT64_MAX);
  const uint64_t kilobytes =
      number_in("/proc/meminfo", "MemAvailable: %" SCNu64, UINT64_MAX / 1024);
  memory.total = static_cast<size_t>(std::min<uint64_t>(memory.total, limit));
  memory.free = static_cast<size_t>(
      std::min({uint64_t{memory.free}, uint64_t{memory.total}, kilobytes * 1024}));
  return memory;
}

}  // namespace marlin_ggml
