// Floats in rows, which are quantized or kept when they are read.
#pragma once

#include <memory>

#include "base/status.h"
#include "formats/prune.h"
#include "formats/weights.h"
#include "layouts/operands.h"

namespace metal_marlin {

/// How a layer is converted when it is read from a file.
struct SourceOptions {
  marlin_format quantize_to = MARLIN_FORMAT_NONE;  ///< layers of floats; NONE: they are kept
  int64_t group_size = 0;                          ///< with quantize_to; 0: the format's own
  bool search_mse = false;  ///< with quantize_to: the scales of least squared error
  SparseRule sparse{};      ///< of layers of floats and of codes
};

/// Quantizes floats [n, k] with any row stride when they are read. With sparse_meta (as in ROWS),
/// the floats are the kept ones, [n, k / 2]. With NONE, or a format of floats, dense floats become
/// weights of that type, rounded to nearest even if the type is shorter than theirs.
Result<std::unique_ptr<WeightSource>> quantize_floats(const LayoutOperands& operands,
                                                      const SourceOptions& options);

}  // namespace metal_marlin
