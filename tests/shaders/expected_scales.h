// The oracle's own reading of canonical scales and zeros.
#pragma once

#include "formats/weights.h"
#include "oracle.h"

namespace shaders {

/// Appends the scale and the zero of every row and group.
void add_scales(const metal_marlin::WeightMeta& meta, const metal_marlin::Stripe& all, oracle::Weights& to);

}  // namespace shaders
