// Several matrices as one, or as a stack of experts.
#pragma once

#include <memory>
#include <vector>

#include "base/status.h"
#include "formats/weights.h"

namespace metal_marlin {

/// The parts one below the other; they must agree in k, format, groups and kinds of scales and
/// zeros.
Result<std::unique_ptr<WeightSource>> make_concat(std::vector<std::unique_ptr<WeightSource>> parts);
/// Lets the experts of one stack agree in all but what a column's group and a row's tensor scale
/// are; an error where they cannot.
Status make_alike(std::vector<std::unique_ptr<WeightSource>>& experts);

}  // namespace metal_marlin
