// Encoders turn canonical weights into the bytes of the operands of a layout: the inverse of the
// readers. Each encoder is in the file of its reader.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "formats/weights.h"

namespace metal_marlin {

/// Stripes begin at a multiple of this many rows, so that no two stripes share a word in any layout
/// that packs along N.
inline constexpr int64_t kStripeRows = 64;

/// The role of a tensor in a layer. `shape` holds n and k.
enum class TensorRole : uint8_t {
  values,
  scales,
  zeros,
  group_index,
  tensor_scale,
  sparse_meta,
  shape
};
inline constexpr size_t kTensorRoles = 7;

/// One tensor of a layer.
struct EncodedTensor {
  TensorRole role;
  std::string_view type;      ///< as the container spells it
  std::vector<int64_t> dims;  ///< of one expert
};

/// Writes bytes of tensor number `tensor`; the position counts from the beginning of the current
/// expert. Several threads may call it at once.
using TensorWriter =
    std::function<Status(size_t tensor, uint64_t offset, std::span<const std::byte> bytes)>;

/// Stores one matrix (one expert of a layer).
class Encoder {
 public:
  virtual ~Encoder() = default;
  /// Rows [first, first + count); first is a multiple of kStripeRows. Several threads may store
  /// different rows at once.
  virtual Status encode(const Stripe& stripe, int64_t first, int64_t count,
                        const TensorWriter& out) = 0;
  /// Called once, when all rows were stored.
  virtual Status finish(const TensorWriter& out) = 0;
};

/// The encoder of a layout.
struct LayoutEncoder {
  /// Checks whether the layout has a form for this format with these options.
  Status (*check)(const WeightMeta& meta);
  /// The tensors of the layer; MARLIN_E_UNSUPPORTED or MARLIN_E_SHAPE if this matrix does not fit.
  /// `meta` describes one expert; the tensor scale may differ from expert to expert.
  Result<std::vector<EncodedTensor>> (*tensors)(const WeightMeta& meta, uint32_t experts);
  /// `meta` is the source's own, for which tensors() succeeded.
  std::unique_ptr<Encoder> (*make)(const WeightMeta& meta);
  /// All kinds of weights that the layout has for matrices [n, k], the one of fewest bits first;
  /// null for a layout whose files are of one kind.
  std::vector<WeightMeta> (*kinds)(int64_t n, int64_t k) = nullptr;
};

/// MARLIN_E_SHAPE unless k is a multiple of the group size or there is one group.
Status expect_whole_groups(const WeightMeta& meta, const char* name);

/// MARLIN_E_UNSUPPORTED if the scales are float32, as they are for very large or very small
/// weights.
Status expect_f16_scales(const WeightMeta& meta, const char* name);

/// Appends count codes as nibbles, low first; an odd last byte has 0 in its upper half.
void append_nibbles(const uint8_t* codes, int64_t count, std::vector<std::byte>& out);
inline std::span<const std::byte> bytes_of(const std::vector<uint8_t>& v) {
  return std::as_bytes(std::span(v));
}

}  // namespace metal_marlin
