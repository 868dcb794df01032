// Rows that alternate gate and up.
#pragma once

#include <memory>

#include "base/status.h"
#include "formats/weights.h"

namespace metal_marlin {

/// Another source whose rows alternate gate and up: quantizers know nothing of that.
Result<std::unique_ptr<WeightSource>> make_interleaved(std::unique_ptr<WeightSource> source);

}  // namespace metal_marlin
