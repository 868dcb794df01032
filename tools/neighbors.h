// How much of the processors other processes had while this one measured.
#pragma once

#include <chrono>

namespace metal_marlin::tools {

/// Counts from its construction on.
class Neighbors {
 public:
  Neighbors();
  /// Processors that others had on average, of those that this process may run on; 0 where the
  /// system does not tell. Time that a hypervisor took counts, too.
  double processors() const;

 private:
  double busy_, own_;  ///< seconds of processors
  std::chrono::steady_clock::time_point start_;
};

}  // namespace metal_marlin::tools
