// Loading layers of a checkpoint into packed weights.
#pragma once

#include <cstdint>

#include "api/context.h"
#include "api/weights.h"
#include "base/status.h"
#include "checkpoints/checkpoint.h"
#include "metal_marlin/metal_marlin.h"

namespace metal_marlin::api {

struct ShardRange {
  int64_t first, count;
};
/// The range of `whole` elements that a shard takes along one axis.
Result<ShardRange> range_of(int64_t first, int64_t count, int64_t whole, const char* axis);

/// What marlin_weights_load does. The caller owns the handle.
Result<marlin_weights*> load_weights(marlin_context& context, const Checkpoint& files,
                                     const marlin_load_desc& desc);
/// What loading layer `index` of a container would say of its numbers, whose meta is sound.
Status check_packed_layer(const Container& container, size_t index);
/// The same from a packed container. The descriptor is checked.
Result<marlin_weights*> load_packed(marlin_context& context, const Checkpoint& files,
                                    const marlin_load_desc& desc);

}  // namespace metal_marlin::api
