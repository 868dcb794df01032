// Gathers the experts of a layer that a file stores one by one: NAME.experts.0.PART,
// NAME.experts.1.PART, ... are one layer NAME.experts.PART.
#pragma once

#include <memory>

#include "checkpoints/checkpoint.h"

namespace metal_marlin {

/// The same checkpoint with gathered experts; `singles` itself if there are none to gather. Experts
/// are gathered if those that can be read have one shape, format and layout.
std::unique_ptr<Checkpoint> gather_experts(std::unique_ptr<Checkpoint> singles);

}  // namespace metal_marlin
