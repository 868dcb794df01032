// Rows that alternate gate and up.
#pragma once

#include <memory>

#include "base/status.h"
#include "formats/weights.h"

namespace metal_marlin {

/// Marks the rows of another source as alternating gate and up, because quantizers do not know
/// this.
Result<std::unique_ptr<WeightSource>> make_interleaved(std::unique_ptr<WeightSource> source);

}  // namespace metal_marlin
