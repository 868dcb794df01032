// The choice among a backend's kernels, pure: what is there, what is asked, one answer.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"

namespace metal_marlin {

/// One kernel as the choice sees it. A backend lists its kernels best first.
struct KernelCandidate {
  std::string_view name;
  uint32_t features = 0;  ///< all of these bits are needed
  int64_t m_min = 1,
          m_max = 0;  ///< rows of A for which the kernel is the backend's choice; m_max 0: no limit
  bool serves = false;  ///< types, scales and epilogue fit
};

/// Index of the first candidate that serves, whose features are all `available` and whose range
/// holds m. A non-empty `forced` names the only candidate to consider; its range is then ignored.
/// MARLIN_E_UNSUPPORTED says what is missing.
Result<size_t> choose_kernel(std::span<const KernelCandidate> candidates, uint32_t available,
                             int64_t m, std::string_view forced);

/// Adds to what `explain` says; a line of more than 255 bytes is cut.
[[gnu::format(printf, 2, 3)]] void append(std::string& text, const char* format, ...);

}  // namespace metal_marlin
