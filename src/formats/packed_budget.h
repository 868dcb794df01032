// What packed weights may take in proportion to what they are made of.
#pragma once

#include <cstdint>

#include "base/checked.h"
#include "base/status.h"
#include "formats/weights.h"

namespace metal_marlin {

/// The bytes of a matrix without padding: its codes, scales and zeros at their nominal number, and
/// its group index.
Checked own_bytes(const WeightMeta& meta);

/// Of all matrices of one load, or of one file. Layouts round N up to whole panels and K, or each
/// group of an index, to whole slots: one row takes up to 64 times its bytes, and one column 128
/// times. That does not matter for the shapes of models, nor for a few small matrices.
class PackedBudget {
 public:
  /// Adds to the bytes that packed ones are weighed against.
  void add_own(Checked bytes) { own_ = own_ + bytes; }
  /// Takes the bytes of one more matrix. MARLIN_E_UNSUPPORTED, and nothing is taken, if all of them
  /// would take more than 64 MiB and four times their own bytes.
  Status take(uint64_t bytes);

 private:
  Checked own_{0}, packed_{0};
};

}  // namespace metal_marlin
