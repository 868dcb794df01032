// Loading layers of a checkpoint into packed weights.
#pragma once

#include <cstdint>
#include <string>

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

struct PackedLayers {
  ExpertStack experts;
  marlin_layout layout = 0;  ///< of the first layer
  std::string name;          ///< of the first layer
};
/// Layers of a source file, packed by `packer`. The operands of the descriptor are of `context`.
Result<PackedLayers> pack_layers(const marlin_context& context, Backend& packer,
                                 const Checkpoint& files, const marlin_load_desc& desc);
/// What loading layer `index` of a container would say of its numbers, whose meta is sound.
Status check_packed_layer(const Container& container, size_t index);
/// Layers of a packed container, adopted. The descriptor is checked.
Result<PackedLayers> load_packed(const marlin_context& context, const Checkpoint& files,
                                 const marlin_load_desc& desc);

}  // namespace metal_marlin::api
