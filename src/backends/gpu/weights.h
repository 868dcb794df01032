// Packed weights in device memory.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "backends/gpu/kernels.h"
#include "backends/gpu/layout.h"
#include "backends/gpu/memory.h"
#include "backends/gpu/stream.h"
#include "core/backend.h"
#include "core/tasks.h"

namespace metal_marlin::gpu {

class GpuWeights final : public PackedWeights {
 public:
  /// The parts are in `memory` from its place on. The next expert of a stack, if there is one,
  /// follows after `stride` bytes.
  GpuWeights(WeightMeta meta, RowBlockLayout packed, std::vector<int32_t> order,
             DevicePointer memory, uint64_t stride)
      : layout(packed),
        slot_to_k(std::move(order)),
        expert_stride(stride),
        place_(std::move(memory)) {
    meta_ = std::move(meta);
  }
  uint64_t bytes() const override { return layout.bytes; }
  PlanKey plan_key() const override {
    PlanKey key(meta_, layout.slots, layout.slot_group);
    key.own = layout.plan_bits();
    return key;
  }
  /// A part of the layout, which begins at this byte of it.
  DevicePointer part(uint64_t at) const { return place_.at(at); }

  const RowBlockLayout layout;
  const std::vector<int32_t> slot_to_k;  ///< as on the device; empty when the order is the file's
  const uint64_t expert_stride;          ///< 0: the experts of the stack lie apart

 private:
  const DevicePointer place_;
};

using GpuWeightStack = std::vector<std::unique_ptr<GpuWeights>>;

/// Packs experts (or the one matrix) on the host. With unified memory the result is the weights;
/// otherwise it is copied to the device. Experts of one layout are neighbors in one buffer; if
/// their layouts differ, which act-order can make them do, each has a buffer of its own.
Result<GpuWeightStack> pack_on_device(std::span<const WeightSource* const> experts, SlotOrder order,
                                      device::Device& device, Memory& memory, TaskRunner& runner);

/// The experts of one handle over bytes of a file (Backend::adopt). Where the device reaches memory
/// of the host, they are used where they lie; otherwise, and where the system does not let the
/// device use them, they are copied to it as they are.
Result<GpuWeightStack> adopt_on_device(std::span<const PackedMatrix> experts,
                                       const std::shared_ptr<const void>& owner,
                                       const Policy& policy, Memory& memory, StreamCache& streams);

}  // namespace metal_marlin::gpu
