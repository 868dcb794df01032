// How a scheme (a family of files) stores a quantized matrix: canonical weights to the bytes of its
// tensors, the importers' inverse. One file a scheme.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "checkpoints/convert/json_writer.h"
#include "formats/weights.h"

namespace metal_marlin {

/// Stripes begin at a multiple of this many rows: no two of them share a word, whatever a scheme
/// packs along N.
inline constexpr int64_t kStripeRows = 64;

/// One tensor of a layer.
struct Part {
  std::string name;           ///< of the whole tensor
  std::string_view type;      ///< as the container spells it
  std::vector<int64_t> dims;  ///< of one expert
};

/// Writes bytes of part number `part`, counted from the begin of the expert at hand. May be called
/// by several threads at once.
using PartWriter =
    std::function<Status(size_t part, uint64_t offset, std::span<const std::byte> bytes)>;

/// Stores one matrix (one expert of a layer).
class Encoder {
 public:
  virtual ~Encoder() = default;
  /// Rows [first, first + count); first is a multiple of kStripeRows. Several threads may store
  /// different rows at once.
  virtual Status encode(const Stripe& stripe, int64_t first, int64_t count,
                        const PartWriter& out) = 0;
  /// Called once, when all rows were stored.
  virtual Status finish(const PartWriter& out) = 0;
};

/// What a layer is to become.
struct EncoderTarget {
  std::string base;      ///< the layer's name without ".weight"
  std::string tensor;    ///< the name of its tensor of floats
  uint32_t experts = 1;  ///< parts get a leading dimension when there are more
  WeightMeta meta;       ///< of one expert; its tensor scale may differ from expert to expert
};

/// One family of files; the table is in encoder.cc.
struct Scheme {
  marlin_scheme number;
  const char* name;  ///< "compressed-tensors"
  bool gguf;         ///< its container; else safetensors
  bool divides;      ///< its NVFP4 tensor scale divides
  bool sparse;  ///< stores the pattern of 2:4 sparse weights; else they are written densely, with
                ///< codes of 0 between
  int64_t default_group;  ///< of INT4 when none is asked for; 0: the format's own
  /// Whether the scheme has a form for this format at all, and with these options.
  Status (*check)(const WeightMeta& meta);
  /// The layer's tensors; MARLIN_E_UNSUPPORTED or MARLIN_E_SHAPE when this matrix does not fit.
  Result<std::vector<Part>> (*parts)(const EncoderTarget& target);
  /// `meta` is the source's own, for which parts() succeeded.
  std::unique_ptr<Encoder> (*encoder)(const WeightMeta& meta);
  /// Writes the members of config.json's quantization_config; null for containers that need none.
  /// `ignore`: layers of floats that stay so. meta.group_size is what was asked for; meta.groups is
  /// 1 when no row has more.
  void (*describe)(const WeightMeta& meta, std::span<const std::string> ignore, JsonWriter& config);
  const char* own_config;  ///< a file of its own that holds the same; or null
};

/// Null for a number that is no scheme.
const Scheme* scheme_row(marlin_scheme number);

/// MARLIN_E_SHAPE unless k is whole groups, or one.
Status expect_whole_groups(const WeightMeta& meta, const char* scheme);

/// MARLIN_E_UNSUPPORTED when the scales are float32, as those of very large or very small weights
/// are.
Status expect_f16_scales(const WeightMeta& meta, const char* scheme);

/// Appends count codes as nibbles, low first; an odd last byte has 0 in its upper half.
void append_nibbles(const uint8_t* codes, int64_t count, std::vector<std::byte>& out);
inline std::span<const std::byte> bytes_of(const std::vector<uint8_t>& v) {
  return std::as_bytes(std::span(v));
}

// The schemes' rows.
extern const Scheme kCompressedTensors, kGptq, kMarlin24, kGguf;

}  // namespace metal_marlin
