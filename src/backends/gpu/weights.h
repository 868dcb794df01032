// Packed weights in device memory.
#pragma once

#include <memory>
#include <vector>

#include "backends/gpu/layout.h"
#include "backends/gpu/memory.h"
#include "core/backend.h"
#include "core/tasks.h"

namespace metal_marlin::gpu {

class GpuWeights final : public PackedWeights {
 public:
  GpuWeights(WeightMeta meta, RowBlockLayout packed, std::vector<int32_t> order,
             device::BufferRef memory)
      : layout(packed), slot_to_k(std::move(order)), buffer(std::move(memory)) {
    meta_ = std::move(meta);
  }
  uint64_t bytes() const override { return layout.bytes; }

  const RowBlockLayout layout;
  const std::vector<int32_t> slot_to_k;  ///< as on the device; empty when the order is the file's
  const device::BufferRef buffer;
};

/// Packs the weights on the host. With unified memory the result is the weights; otherwise it is
/// copied to the device.
Result<std::unique_ptr<GpuWeights>> pack_on_device(const WeightSource& source, SlotOrder order,
                                                   device::Device& device, Memory& memory,
                                                   TaskRunner& runner);

}  // namespace metal_marlin::gpu
