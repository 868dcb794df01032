#include "backends/gpu/weights.h"

#include <cinttypes>

#include "backends/gpu/pack.h"

namespace metal_marlin::gpu {
namespace {

/// Copies from memory that the host fills to memory that the host does not reach, and waits.
Status upload(device::Device& device, const device::BufferRef& from, const device::BufferRef& to,
              uint64_t bytes) {
  MARLIN_ASSIGN(const auto stream, device.stream({}));
  MARLIN_RETURN_IF_ERROR(stream->copy(from, 0, to, 0, bytes));
  MARLIN_RETURN_IF_ERROR(stream->commit());
  return stream->wait(UINT64_MAX);
}

}  // namespace

Result<std::unique_ptr<GpuWeights>> pack_on_device(const WeightSource& source, SlotOrder order,
                                                   device::Device& device, Memory& memory,
                                                   TaskRunner& runner) {
  for (const Exponents exponents : {Exponents::bytes, Exponents::floats}) {
    MARLIN_ASSIGN(PackPlan plan, plan_packing(source.meta(), exponents, order));
    const uint64_t bytes = plan.layout.bytes;
    if (plan.layout.n > INT32_MAX - kRowBlock)
      return Status::error(MARLIN_E_SHAPE, "n: %" PRId64 " rows are more than this device takes",
                           plan.layout.n);
    MARLIN_ASSIGN(device::BufferRef buffer,
                  memory.allocate(bytes, device::Placement::device, "weights"));
    device::BufferRef filled = buffer;
    if (buffer->host() == nullptr) {
      MARLIN_ASSIGN(filled,
                    memory.allocate(bytes, device::Placement::shared, "weights on their way"));
    }
    MARLIN_ASSIGN(const bool fits, pack_weights(source, plan, {filled->host(), bytes}, runner));
    if (!fits) continue;
    if (filled != buffer) MARLIN_RETURN_IF_ERROR(upload(device, filled, buffer, bytes));
    return std::make_unique<GpuWeights>(std::move(plan.meta), plan.layout,
                                        std::move(plan.slot_to_k), std::move(buffer));
  }
  return Status::error(MARLIN_E_INTERNAL, "packing: exponents did not fit float32 scales");
}

}  // namespace metal_marlin::gpu
