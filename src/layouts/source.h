// Makes a source from operands that are given by pointer.
#pragma once

#include <memory>

#include "base/status.h"
#include "formats/weights.h"
#include "layouts/operands.h"

namespace metal_marlin {

/// A source that reads these operands, which must outlive it. It quantizes float values. Checks
/// every shape, dtype and code.
Result<std::unique_ptr<WeightSource>> make_source(const LayoutOperands& operands);

}  // namespace metal_marlin
