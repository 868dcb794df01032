#include "core/plan.h"

#include <algorithm>
#include <cinttypes>
#include <cstdarg>
#include <cstdio>

namespace metal_marlin {
namespace {

bool has_features(const KernelCandidate& c, uint32_t available) {
  return (c.features & ~available) == 0;
}

Result<size_t> find_forced(std::span<const KernelCandidate> candidates, uint32_t available,
                           std::string_view forced) {
  const int length = static_cast<int>(forced.size() > 80 ? 80 : forced.size());
  for (size_t i = 0; i < candidates.size(); ++i) {
    const KernelCandidate& c = candidates[i];
    if (c.name != forced) continue;
    if (!has_features(c, available))
      return Status::error(
          MARLIN_E_UNSUPPORTED,
          "METAL_MARLIN_KERNEL asks for %.*s, which needs instructions that are not there", length,
          forced.data());
    if (!c.serves)
      return Status::error(MARLIN_E_UNSUPPORTED,
                           "METAL_MARLIN_KERNEL asks for %.*s, which does not serve these types",
                           length, forced.data());
    return i;
  }
  return Status::error(MARLIN_E_UNSUPPORTED,
                       "METAL_MARLIN_KERNEL asks for %.*s, which no backend of this library has",
                       length, forced.data());
}

}  // namespace

Result<size_t> choose_kernel(std::span<const KernelCandidate> candidates, uint32_t available,
                             int64_t m, std::string_view forced) {
  if (!forced.empty()) return find_forced(candidates, available, forced);
  for (size_t i = 0; i < candidates.size(); ++i)
    if (may_run(candidates[i], available, m)) return i;
  return Status::error(MARLIN_E_UNSUPPORTED,
                       "no kernel of this backend serves these types with %" PRId64 " rows of A",
                       m);
}

void append(std::string& text, const char* format, ...) {
  char line[256];
  va_list args;
  va_start(args, format);
  const int n = std::vsnprintf(line, sizeof line, format, args);
  va_end(args);
  if (n > 0) text.append(line, std::min<size_t>(static_cast<size_t>(n), sizeof line - 1));
}

}  // namespace metal_marlin
