// Several matrices as one, or as a stack of experts.
#pragma once

#include <memory>
#include <vector>

#include "base/status.h"
#include "formats/weights.h"

namespace metal_marlin {

/// Joins the parts one below the other. They must agree in k, format, groups and kinds of scales
/// and zeros.
Result<std::unique_ptr<WeightSource>> make_concat(std::vector<std::unique_ptr<WeightSource>> parts);
/// Makes the experts of one stack agree in everything except the group index and the tensor scales.
/// It is an error if they cannot agree.
Status make_alike(std::vector<std::unique_ptr<WeightSource>>& experts);

}  // namespace metal_marlin
