// From operands given by pointer to a source.
#pragma once

#include <memory>

#include "base/status.h"
#include "formats/weights.h"
#include "layouts/operands.h"

namespace metal_marlin {

/// A source that reads these operands; they must outlive it. Float values are quantized. Checks
/// every shape, dtype and code.
Result<std::unique_ptr<WeightSource>> make_source(const LayoutOperands& operands);

}  // namespace metal_marlin
