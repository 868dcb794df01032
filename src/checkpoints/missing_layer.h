// The error for a name that no layer has.
#pragma once

#include "base/status.h"
#include "checkpoints/checkpoint.h"

namespace metal_marlin {

/// MARLIN_E_NOT_FOUND with the number of layers, and with the name that is most like this one:
/// without a suffix such as ".weight", with a prefix such as "model.", or with few other letters.
/// Only the first layers of a huge checkpoint are compared.
Status missing_layer(const Checkpoint& files, std::string_view name);

}  // namespace metal_marlin
