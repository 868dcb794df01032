// What a backend can do beside Backend: read packed weights back.
#pragma once

#include <memory>

#include "base/status.h"
#include "core/backend.h"
#include "formats/weights.h"

namespace metal_marlin {

class PackedReader {
 public:
  virtual ~PackedReader() = default;
  /// The canonical rows that pack() was given, which the result reads from the packed weights. It
  /// borrows them. MARLIN_E_UNSUPPORTED for sparse weights and for those whose k are not in the
  /// order of the file.
  virtual Result<std::unique_ptr<WeightSource>> source_of(const PackedWeights& weights) const = 0;
};

}  // namespace metal_marlin
