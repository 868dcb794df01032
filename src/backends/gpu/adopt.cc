// Packed weights of a file on the device.
#include <cinttypes>
#include <cstring>
#include <utility>

#include "backends/gpu/pack.h"
#include "backends/gpu/weights.h"
#include "base/bits.h"

namespace metal_marlin::gpu {
namespace {

/// The numbers among the bytes that kernels make addresses of follow from the meta, like the sizes
/// of the parts. So does the alignment that they rely on.
Status check_bytes(const PackedMatrix& matrix, const PackPlan& plan) {
  const RowBlockLayout& layout = plan.layout;
  const std::byte* const at = matrix.data.data();
  if (reinterpret_cast<uintptr_t>(at) % kPartAlign != 0)
    return Status::error(MARLIN_E_FORMAT,
                         "packed weights: expected an address that is a multiple of %" PRIu64,
                         kPartAlign);
  const size_t order_bytes = plan.slot_to_k.size() * sizeof(int32_t);
  if (layout.permuted &&
      std::memcmp(at + layout.slot_to_k_at, plan.slot_to_k.data(), order_bytes) != 0)
    return Status::error(MARLIN_E_FORMAT,
                         "packed weights: byte %" PRIu64
                         ": order of columns: expected that of the group index, found another",
                         layout.slot_to_k_at);
  if (!layout.nested()) return {};
  const uint64_t factors_at = layout.zeros_at + sizeof(float) * kFactorQuadsAt;
  const auto found = load<int32_t>(at + factors_at);
  if (found == layout.factor_quads) return {};
  return Status::error(MARLIN_E_FORMAT,
                       "packed weights: byte %" PRIu64 ": quads of a factor: expected %" PRId64
                       ", found %d",
                       factors_at, layout.factor_quads, found);
}

/// The distance between the begins of the experts, or 0 where one dispatch cannot find them all.
uint64_t stride_of(std::span<const PackedMatrix> experts, std::span<const PackPlan> plans) {
  const auto begin = [&](size_t e) { return reinterpret_cast<uintptr_t>(experts[e].data.data()); };
  if (experts.size() < 2 || begin(1) < begin(0) + experts[0].data.size()) return 0;
  const uint64_t stride = begin(1) - begin(0);
  for (size_t e = 1; e < experts.size(); ++e)
    if (begin(e) - begin(e - 1) != stride || plans[e].layout != plans[0].layout) return 0;
  return stride;
}

Result<DevicePointer> reach(std::span<const std::byte> bytes,
                            const std::shared_ptr<const void>& owner, Memory& memory,
                            StreamCache& streams) {
  if (memory.unified()) {
    auto view = memory.wrap(bytes, owner);
    if (view.ok()) return view;  // else copied: a mapping may be of a kind that no device takes
  }
  MARLIN_ASSIGN(device::BufferRef buffer,
                memory.allocate(bytes.size(), device::Placement::device, "weights"));
  if (buffer->host() != nullptr) {
    std::memcpy(buffer->host(), bytes.data(), bytes.size());
  } else {
    MARLIN_ASSIGN(auto stream, streams.take());
    MARLIN_RETURN_IF_ERROR(stream->upload(memory, bytes, buffer));
    streams.put(std::move(stream));
  }
  return DevicePointer{std::move(buffer), 0};
}

}  // namespace

Result<GpuWeightStack> adopt_on_device(std::span<const PackedMatrix> experts,
                                       const std::shared_ptr<const void>& owner,
                                       const Policy& policy, Memory& memory, StreamCache& streams) {
  std::vector<PackPlan> plans;
  for (const PackedMatrix& matrix : experts) {
    MARLIN_ASSIGN(PackPlan plan, plan_of_packed(matrix, policy));
    MARLIN_RETURN_IF_ERROR(check_bytes(matrix, plan));
    plans.push_back(std::move(plan));
  }
  const uint64_t stride = stride_of(experts, plans);
  const uint64_t others = stride * (experts.size() - 1);
  GpuWeightStack all;
  DevicePointer first;
  for (size_t e = 0; e < experts.size(); ++e) {
    const std::span<const std::byte> own = experts[e].data;
    if (e == 0 || stride == 0) {
      MARLIN_ASSIGN(first, reach({own.data(), others + own.size()}, owner, memory, streams));
    }
    all.push_back(std::make_unique<GpuWeights>(std::move(plans[e].meta), plans[e].layout,
                                               std::move(plans[e].slot_to_k), first.at(e * stride),
                                               stride));
  }
  return all;
}

}  // namespace metal_marlin::gpu
