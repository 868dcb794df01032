// The choice among the kernels of a backend: a pure function of the candidates and the problem.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"

namespace metal_marlin {

/// The properties of one kernel that matter to the choice. A backend lists its kernels best first.
struct KernelCandidate {
  std::string_view name;
  uint32_t features = 0;  ///< all of these bits are needed
  int64_t m_min = 1,
          m_max = 0;  ///< rows of A for which the kernel is the backend's choice; m_max 0: no limit
  bool serves = false;  ///< types, scales and epilogue fit
};

/// The index of the first candidate that serves, whose features are all `available` and whose range
/// contains m. A non-empty `forced` names the only candidate to consider; its range is then
/// ignored. MARLIN_E_UNSUPPORTED says what is missing.
Result<size_t> choose_kernel(std::span<const KernelCandidate> candidates, uint32_t available,
                             int64_t m, std::string_view forced);

/// Whether choose_kernel() may choose the candidate for m rows.
constexpr bool may_run(const KernelCandidate& c, uint32_t available, int64_t m) {
  return c.serves && (c.features & ~available) == 0 && m >= c.m_min &&
         (c.m_max == 0 || m <= c.m_max);
}

/// Appends to the text of `explain`. A line of more than 255 bytes is cut.
[[gnu::format(printf, 2, 3)]] void append(std::string& text, const char* format, ...);

}  // namespace metal_marlin
