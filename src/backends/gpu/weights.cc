#include "backends/gpu/weights.h"

#include <algorithm>
#include <cinttypes>
#include <deque>
#include <optional>

#include "backends/gpu/pack.h"
#include "formats/float16_scales.h"
#include "formats/signed_bytes.h"
#include "formats/steady_scales.h"

namespace metal_marlin::gpu {
namespace {

/// The experts of one layout, in one buffer, one after another.
class Stack {
 public:
  /// Allocates for `count` experts, each as `plan` says. Where the host does not reach the memory
  /// of weights, it fills memory for one expert at a time, which is then copied.
  static Result<Stack> allocate(const PackPlan& plan, size_t count, device::Device& device,
                                Memory& memory) {
    const int64_t stride =
        round_up(static_cast<int64_t>(plan.layout.bytes), static_cast<int64_t>(kPartAlign));
    Stack stack(static_cast<uint64_t>(stride), device);
    if (count > UINT64_MAX / stack.stride_)
      return Status::error(MARLIN_E_MEMORY, "%zu experts of %" PRIu64 " bytes do not fit memory",
                           count, stack.stride_);
    MARLIN_ASSIGN(stack.buffer_,
                  memory.allocate(count * stack.stride_, device::Placement::device, "weights"));
    if (stack.buffer_->host() == nullptr) {
      MARLIN_ASSIGN(stack.filled_, memory.allocate(stack.stride_, device::Placement::shared,
                                                   "weights on their way"));
    }
    return stack;
  }

  /// False if the exponents of some row do not fit bytes.
  Result<bool> pack(const WeightSource& source, const PackPlan& plan, size_t expert,
                    TaskRunner& runner) const {
    const uint64_t at = expert * stride_;
    std::byte* const to = filled_ != nullptr ? filled_->host() : buffer_->host() + at;
    MARLIN_ASSIGN(const bool fits, pack_weights(source, plan, {to, plan.layout.bytes}, runner));
    if (fits && filled_ != nullptr) MARLIN_RETURN_IF_ERROR(upload(at, plan.layout.bytes));
    return fits;
  }
  DevicePointer place(size_t expert) const { return {buffer_, expert * stride_}; }
  uint64_t stride() const { return stride_; }

 private:
  Stack(uint64_t stride, device::Device& device) : stride_(stride), device_(&device) {}

  /// Copies from memory that the host fills to memory that the host does not reach, and waits.
  Status upload(uint64_t at, uint64_t bytes) const {
    MARLIN_ASSIGN(const auto stream, device_->stream({}));
    MARLIN_RETURN_IF_ERROR(stream->copy(filled_, 0, buffer_, at, bytes));
    MARLIN_RETURN_IF_ERROR(stream->commit());
    return stream->wait(UINT64_MAX);
  }

  uint64_t stride_;
  device::Device* device_;
  device::BufferRef buffer_, filled_;  // filled_: null if the host reaches buffer_
};

Result<std::vector<PackPlan>> plan_all(std::span<const WeightSource* const> experts,
                                       Exponents exponents, SlotOrder order) {
  std::vector<PackPlan> plans;
  for (const WeightSource* const expert : experts) {
    MARLIN_ASSIGN(PackPlan plan, plan_packing(expert->meta(), exponents, order));
    plans.push_back(std::move(plan));
  }
  return plans;
}

GpuWeightStack weights_of_stack(std::vector<PackPlan> plans, const Stack& stack, bool steady) {
  GpuWeightStack all;
  for (size_t e = 0; e < plans.size(); ++e) {
    PackPlan& plan = plans[e];
    plan.layout.steady_scales = steady;
    all.push_back(std::make_unique<GpuWeights>(std::move(plan.meta), plan.layout,
                                               std::move(plan.slot_to_k), stack.place(e),
                                               plans.size() > 1 ? stack.stride() : 0));
  }
  return all;
}

Result<GpuWeightStack> pack_as_given(std::span<const WeightSource* const> experts, SlotOrder order,
                                     device::Device& device, Memory& memory, TaskRunner& runner) {
  for (const Exponents exponents : {Exponents::bytes, Exponents::floats}) {
    MARLIN_ASSIGN(std::vector<PackPlan> plans, plan_all(experts, exponents, order));
    const auto differs = [&](const PackPlan& plan) { return plan.layout != plans[0].layout; };
    if (std::any_of(plans.begin(), plans.end(), differs)) break;
    MARLIN_ASSIGN(const Stack stack, Stack::allocate(plans[0], plans.size(), device, memory));
    const bool watches = order == SlotOrder::mma;
    bool steady = watches, fits = true;
    for (size_t e = 0; fits && e < plans.size(); ++e) {
      const SteadyScales watched(*experts[e]);
      const WeightSource& source = watches ? watched : *experts[e];
      MARLIN_ASSIGN(fits, stack.pack(source, plans[e], e, runner));
      steady = steady && watched.are_steady();
    }
    if (fits) return weights_of_stack(std::move(plans), stack, steady);
  }
  if (experts.size() == 1)
    return Status::error(MARLIN_E_INTERNAL, "packing: exponents did not fit float32 scales");
  GpuWeightStack apart;
  for (const WeightSource* const expert : experts) {
    MARLIN_ASSIGN(GpuWeightStack one,
                  pack_as_given(std::span(&expert, 1), order, device, memory, runner));
    apart.push_back(std::move(one[0]));
  }
  return apart;
}

/// INT4 with scales or zeros that float16 may hold. (The fast kernels of CUDA take only those.)
bool may_have_float16(const WeightSource* source) {
  return source->meta().format == MARLIN_FORMAT_INT4 && has_longer_scales(source->meta());
}
/// UINT8 that may be INT8. (CUDA has fast kernels for INT8 alone.)
bool may_be_signed(const WeightSource* source) { return SignedBytes::takes(source->meta()); }

/// Packs the experts as `Wrapper` reads them if `may` holds for all and none changes. Nothing if it
/// does not. (The first value that changes ends the attempt, so that little is read twice.)
template <class Wrapper>
std::optional<Result<GpuWeightStack>> pack_as(std::span<const WeightSource* const> experts,
                                              bool (*may)(const WeightSource*), SlotOrder order,
                                              device::Device& device, Memory& memory,
                                              TaskRunner& runner) {
  if (order != SlotOrder::mma || !std::all_of(experts.begin(), experts.end(), may)) return {};
  std::deque<Wrapper> wrapped;  // they stay where they are
  std::vector<const WeightSource*> sources;
  for (const WeightSource* const expert : experts)
    sources.push_back(&wrapped.emplace_back(*expert));
  auto packed = pack_as_given(sources, order, device, memory, runner);
  const auto is_exact = [](const Wrapper& source) { return source.is_exact(); };
  if (packed.ok() || std::all_of(wrapped.begin(), wrapped.end(), is_exact)) return packed;
  return {};
}

}  // namespace

Result<GpuWeightStack> pack_on_device(std::span<const WeightSource* const> experts, SlotOrder order,
                                      device::Device& device, Memory& memory, TaskRunner& runner) {
  if (auto halves =
          pack_as<Float16Scales>(experts, may_have_float16, order, device, memory, runner))
    return std::move(*halves);
  if (auto bytes = pack_as<SignedBytes>(experts, may_be_signed, order, device, memory, runner))
    return std::move(*bytes);
  return pack_as_given(experts, order, device, memory, runner);
}

}  // namespace metal_marlin::gpu
