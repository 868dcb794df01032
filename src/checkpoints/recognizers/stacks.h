// Stacks of experts have three dimensions. Files have the last two in either order.
#pragma once

#include "checkpoints/recognize.h"

namespace metal_marlin {

/// Whether a tensor of three dimensions holds experts. Convolutions have three dimensions, too, so
/// the name or the number of experts in the config must say it.
bool is_stack(const Finder& finder, const TensorView& tensor);

/// Takes the values of a stack whose elements are whole bytes: as [experts, n, k] or, transposed,
/// as [experts, k, n]. The caller, the shapes of scales, the two matrices of an expert, which fit
/// together in one order, and the sizes in the config decide. If both orders are left, the layer
/// cannot be read.
void settle_order(const Finder& finder, const TensorView& scales, Finding& found);

}  // namespace metal_marlin
