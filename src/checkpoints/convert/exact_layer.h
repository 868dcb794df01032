// Converts a layer that is quantized already without rounding, if the scheme has a kind of weights
// that holds every value.
#pragma once

#include <memory>
#include <optional>

#include "base/status.h"
#include "checkpoints/checkpoint.h"
#include "checkpoints/convert/convert.h"
#include "checkpoints/convert/scheme.h"

namespace metal_marlin {

/// The kind of weights that holds the layer at this place of options.layers: the requested one, or
/// with no request the smallest of the scheme; nothing if there is none. Reads the layer.
Result<std::optional<WeightMeta>> exact_meta(const Checkpoint& input, const Scheme& scheme,
                                             const ConvertOptions& options, size_t place);

/// One expert of the layer as weights that exact_meta has found.
Result<std::unique_ptr<WeightSource>> exact_source(const Checkpoint& input, size_t layer,
                                                   uint32_t expert, const WeightMeta& meta,
                                                   const Scheme& scheme);

}  // namespace metal_marlin
