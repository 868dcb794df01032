#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "backends/cpu/activations.h"
#include "backends/cpu/pack.h"
#include "core/parallel.h"
#include "core/shapes.h"
#include "core/slots.h"
#include "formats/codecs.h"
#include "formats/decode.h"
#include "formats/format_table.h"

namespace metal_marlin::cpu {
namespace {

/// Numbers the groups of slots in the order of the slots, and returns how many there are. A group
/// index may number them as it likes, and a row of scales takes no more memory than its slots have.
int64_t number_by_slots(std::vector<int32_t>& groups) {
  int32_t last = -1, number = -1;
  for (int32_t& group : groups) {
    if (group < 0) continue;
    if (group != last) ++number;
    last = std::exchange(group, number);
  }
  return number + 1;
}

/// The same matrix with its k in the order of the slots, where groups lie together. The decoder
/// then decodes each group once, even if an act-order file scatters it.
WeightMeta meta_of_slots(const CpuWeights& weights, const std::vector<int32_t>& groups,
                         int64_t count) {
  WeightMeta meta = weights.meta();
  meta.k = weights.layout.slots;
  meta.groups = count;
  meta.group_index.resize(static_cast<size_t>(meta.k));
  for (size_t slot = 0; slot < meta.group_index.size(); ++slot)
    meta.group_index[slot] =
        std::max(0, groups[slot / static_cast<size_t>(weights.layout.slot_group)]);
  return meta;
}

/// Turns packed rows back into canonical rows whose k are the slots. Each thread has one reader.
class RowReader {
 public:
  /// `meta` is meta_of_slots().
  RowReader(const CpuWeights& weights, const WeightMeta& meta, const std::vector<int32_t>& groups)
      : weights_(weights), groups_(groups) {
    stripe_.codes.resize(static_cast<size_t>(meta.k) * format_row(meta.format)->code_bytes());
    stripe_.scales.resize(static_cast<size_t>(meta.groups) * scale_bytes(meta.scale_type));
    stripe_.zeros.resize(static_cast<size_t>(meta.groups) * zero_bytes());
    if (meta.has_two_level_scales()) stripe_.scale_factors.resize(factor_bytes());
    if (meta.has_two_level_zeros()) stripe_.zero_factors.resize(factor_bytes());
    if (meta.has_nested_scales()) {
      stripe_.scale_factors.resize(stripe_.scales.size() * sizeof(float));
      stripe_.scale_offsets.resize(sizeof(float));
    }
    if (meta.sparse) stripe_.kept.resize(static_cast<size_t>(meta.k / 4));
  }

  /// Valid until the next call.
  const Stripe& read(int64_t row) {
    const PanelLayout& layout = weights_.layout;
    const std::byte* const panel =
        weights_.data.data() + row / kPanelColumns * layout.panel_bytes();
    const auto column = static_cast<int>(row % kPanelColumns);
    if (layout.sparse)
      read_kept(panel, column);
    else
      read_codes(panel, column);
    const size_t scale = scale_bytes(layout.scale_type), zero = zero_bytes();
    if (is_two_level(layout.scale_type))
      read_two_level(panel + layout.scales_offset(), column, layout.scale_type, stripe_.scales,
                     stripe_.scale_factors, 0);
    else
      read_groups(panel + layout.scales_offset() + column * scale, layout.scale_row_bytes(), scale,
                  stripe_.scales);
    if (layout.has_nested_scales()) read_nested(panel + layout.nested_offset(), column);
    if (layout.has_two_level_zeros())
      read_two_level(panel + layout.zeros_offset(), column, layout.zero_type, stripe_.zeros,
                     stripe_.zero_factors, kHalfSign);
    else if (zero != 0)
      read_groups(panel + layout.zeros_offset() + column * zero, layout.zero_row_bytes(), zero,
                  stripe_.zeros);
    return stripe_;
  }

 private:
  size_t zero_bytes() const {
    return static_cast<size_t>(weights_.layout.zero_row_bytes() / kPanelColumns);
  }

  void read_codes(const std::byte* panel, int column) {
    const PanelLayout& layout = weights_.layout;
    const int low = layout.low_bits(), format_bytes = std::max(1, layout.code_bits / 8);
    std::fill(stripe_.codes.begin(), stripe_.codes.end(), uint8_t{0});
    for (int64_t block = 0; block < layout.slots / kBlockSlots; ++block) {
      const std::byte* const from =
          panel + layout.block_offset(column, block) + column % kGroupColumns * 4;
      uint8_t* const to = stripe_.codes.data() + block * kBlockSlots * format_bytes;
      if (layout.code_bits == 16) {
        read_pairs(from, to);
        continue;
      }
      if (layout.code_bits == 32) {
        for (int line = 0; line < kBlockSlots; ++line)
          store(to + 4 * slot_of_step(line), load<uint32_t>(from + 64 * line));
        continue;
      }
      add_plane(from, 0, low, layout.flipped_bits(), to);
      add_plane(from + 64 * low, low, layout.high_bits(), 0, to);
    }
  }

  /// Reads 32 floats of 2 bytes.
  static void read_pairs(const std::byte* from, uint8_t* to) {
    for (int line = 0; line < kBlockSlots / 2; ++line) {
      const auto pair = load<uint32_t>(from + 64 * line);
      const int slot = first_slot_of_pair(line);
      store(to + 2 * slot, static_cast<uint16_t>(pair));
      store(to + 2 * (slot + 2), static_cast<uint16_t>(pair >> 16));
    }
  }

  /// Adds `bits` bits to 32 codes, from bit `first` on; `flip` flips bits of each dword first.
  static void add_plane(const std::byte* from, int first, int bits, uint32_t flip, uint8_t* codes) {
    const uint32_t mask = ((1u << bits) - 1u) * 0x01010101u;
    for (int line = 0; line < bits; ++line, from += 64) {
      const uint32_t word = load<uint32_t>(from) ^ flip;
      for (int shift = 0; shift < 8; shift += bits, codes += 4)
        store(codes, load<uint32_t>(codes) | (word >> shift & mask) << first);
    }
  }

  void read_kept(const std::byte* panel, int column) {
    const int c = column % kGroupColumns;
    for (int64_t quad = 0; quad < weights_.layout.slots / 4; ++quad) {
      const int in_block = static_cast<int>(quad % (kBlockSlots / 4));
      const auto* const group = reinterpret_cast<const uint8_t*>(
          panel + weights_.layout.block_offset(column, quad / (kBlockSlots / 4)));
      const uint32_t positions = load<uint32_t>(group + kSparsePositions + 4 * c) >> 2 * in_block;
      const unsigned first = positions & 3u, second = positions >> 16 & 3u;
      const uint8_t* const pair = group + in_block / 4 * 64 + 4 * c + in_block % 2;
      const int shift = in_block % 4 / 2 * 4;
      stripe_.kept[static_cast<size_t>(quad)] = static_cast<uint8_t>(1u << first | 1u << second);
      stripe_.codes[static_cast<size_t>(4 * quad + first)] = pair[0] >> shift & 15;
      stripe_.codes[static_cast<size_t>(4 * quad + second)] = pair[2] >> shift & 15;
    }
  }

  /// `from` is the row's first scale (or zero) in the first superblock.
  void read_groups(const std::byte* from, int64_t row_bytes, size_t size,
                   std::vector<uint8_t>& to) const {
    const int in_super = weights_.layout.groups_per_super();
    for (size_t i = 0; i < groups_.size(); ++i) {
      const auto super = static_cast<int64_t>(i) / in_super,
                 in = static_cast<int64_t>(i) % in_super;
      if (groups_[i] < 0) continue;
      std::memcpy(to.data() + groups_[i] * size,
                  from + super * weights_.layout.super_bytes() + in * row_bytes, size);
    }
  }

  /// `from` are the two-level scales (or zeros) of the panel's first superblock; `sign` flips the
  /// bits of their factors.
  void read_two_level(const std::byte* from, int column, ScaleType type,
                      std::vector<uint8_t>& integers, std::vector<uint8_t>& factors,
                      uint16_t sign) const {
    const PanelLayout& layout = weights_.layout;
    const int in_super = layout.groups_per_super();
    for (int64_t super = 0; super < layout.superblocks(); ++super, from += layout.super_bytes()) {
      const auto* const rows = reinterpret_cast<const uint8_t*>(from) + column;
      for (int g = 0; g < in_super; ++g) {
        const int32_t group = groups_[static_cast<size_t>(super * in_super + g)];
        if (group >= 0)
          integers[static_cast<size_t>(group)] =
              static_cast<uint8_t>(two_level_integer(layout, type, rows, g));
      }
      const auto at = static_cast<size_t>(super * kSuperSlots / kFactorSpan) * kFactorBytes;
      const auto factor = load<uint16_t>(from + layout.factors_offset(type) +
                                         column * static_cast<int>(kFactorBytes));
      store(factors.data() + at, static_cast<uint16_t>(factor ^ sign));
    }
  }

  /// `from` are the offsets and factors of the panel.
  void read_nested(const std::byte* from, int column) {
    const PanelLayout& layout = weights_.layout;
    from += column * sizeof(float);
    store(stripe_.scale_offsets.data(), load<uint32_t>(from));
    const int64_t run_groups = layout.factor_slots / layout.slot_group;
    for (size_t i = 0; i < groups_.size(); ++i) {
      const int64_t row = 1 + static_cast<int64_t>(i) / run_groups;
      if (groups_[i] >= 0)
        store(stripe_.scale_factors.data() + groups_[i] * sizeof(float),
              load<uint32_t>(from + row * kPanelColumns * int64_t{sizeof(float)}));
    }
  }

  size_t factor_bytes() const {
    return static_cast<size_t>(ceil_div(weights_.layout.slots, kFactorSpan)) * kFactorBytes;
  }

  const CpuWeights& weights_;
  const std::vector<int32_t>& groups_;
  Stripe stripe_;
};

/// Decodes packed rows with the common decoder. Each thread has one unpacker.
class RowUnpacker {
 public:
  RowUnpacker(const CpuWeights& weights, const WeightMeta& meta, const std::vector<int32_t>& groups,
              const RowSelection& rows, const MatrixView& out)
      : weights_(weights), meta_(meta), reader_(weights, meta, groups), rows_(rows), out_(out) {
    by_slot_.resize(static_cast<size_t>(meta.k));
    if (!weights.slot_to_k.empty()) by_k_.resize(static_cast<size_t>(weights.layout.k));
  }

  Status operator()(int64_t item) {
    // The list is memory of the caller. If it changes meanwhile, the result is an error and not a
    // read outside the matrix.
    MARLIN_ASSIGN(const int64_t row, selected_row(rows_, item, weights_.layout.n));
    decode_rows(meta_, reader_.read(row), row, 1, by_slot_.data());
    encode_floats(
        out_.dtype, in_file_order(), weights_.layout.k,
        static_cast<std::byte*>(out_.data) + item * out_.stride * float_bytes(out_.dtype));
    return {};
  }

 private:
  const float* in_file_order() {
    if (by_k_.empty()) return by_slot_.data();
    for (size_t slot = 0; slot < by_slot_.size(); ++slot)
      if (const int32_t k = weights_.slot_to_k[slot]; k >= 0) by_k_[k] = by_slot_[slot];
    return by_k_.data();
  }

  const CpuWeights& weights_;
  const WeightMeta& meta_;  // meta_of_slots()
  RowReader reader_;
  const RowSelection& rows_;
  const MatrixView& out_;
  std::vector<float> by_slot_, by_k_;
};

/// Canonical rows of packed weights whose slot s is k s, or padding.
class PackedSource final : public WeightSource {
 public:
  explicit PackedSource(const CpuWeights& weights)
      : weights_(weights),
        groups_(
            groups_of_slots(weights.meta(), {weights.layout.slots, weights.layout.slot_group, {}})),
        by_slot_(meta_of_slots(weights, groups_, weights.meta().groups)) {
    meta_ = weights.meta();
  }

  Status read(int64_t first, int64_t count, Stripe& out) const override {
    RowReader reader(weights_, by_slot_, groups_);
    out = {};
    for (int64_t row = first; row < first + count; ++row) {
      const Stripe& one = reader.read(row);
      const auto append = [](std::vector<uint8_t>& to, const std::vector<uint8_t>& from, size_t n) {
        to.insert(to.end(), from.begin(),
                  from.begin() + static_cast<ptrdiff_t>(std::min(n, from.size())));
      };
      const size_t factors = meta_.has_nested_scales()
                                 ? one.scale_factors.size()
                                 : static_cast<size_t>(meta_.factors()) * kFactorBytes;
      append(out.codes, one.codes,
             static_cast<size_t>(meta_.k) * format_row(meta_.format)->code_bytes());
      append(out.scales, one.scales, one.scales.size());
      append(out.zeros, one.zeros, one.zeros.size());
      append(out.scale_factors, one.scale_factors, factors);
      append(out.zero_factors, one.zero_factors, factors);
      append(out.scale_offsets, one.scale_offsets, one.scale_offsets.size());
    }
    return {};
  }

 private:
  const CpuWeights& weights_;
  const std::vector<int32_t> groups_;
  const WeightMeta by_slot_;
};

}  // namespace

Status unpack_rows(const CpuWeights& weights, const RowSelection& rows, const MatrixView& out,
                   TaskRunner& runner) {
  MARLIN_RETURN_IF_ERROR(check_rows(rows, out.rows, weights.layout.n));
  std::vector<int32_t> groups = groups_of_slots(
      weights.meta(), {weights.layout.slots, weights.layout.slot_group, weights.slot_to_k});
  const int64_t count = number_by_slots(groups);
  const WeightMeta meta = meta_of_slots(weights, groups, count);
  return for_each_item(runner, out.rows,
                       [&] { return RowUnpacker(weights, meta, groups, rows, out); });
}

Result<std::unique_ptr<WeightSource>> packed_source(const CpuWeights& weights) {
  if (weights.layout.sparse || !weights.meta().group_index.empty())
    return Status::error(MARLIN_E_UNSUPPORTED, "the codes of %s weights cannot be read back",
                         weights.layout.sparse ? "2:4 sparse" : "act-order");
  return std::unique_ptr<WeightSource>(std::make_unique<PackedSource>(weights));
}

}  // namespace metal_marlin::cpu
