#include <cstring>

#include "backends/cpu/pack.h"
#include "backends/cpu/parallel.h"
#include "backends/cpu/slots.h"
#include "formats/codecs.h"
#include "formats/decode.h"

namespace metal_marlin::cpu {
namespace {

/// Turns packed rows back into canonical ones, which the one decoder then decodes; one a thread.
class RowUnpacker {
 public:
  RowUnpacker(const CpuWeights& weights, const std::vector<int32_t>& groups, std::span<const int64_t> rows,
              const MatrixView& out)
      : weights_(weights), groups_(groups), rows_(rows), out_(out) {
    const WeightMeta& meta = weights.meta();
    slot_codes_.resize(static_cast<size_t>(weights.layout.slots));
    stripe_.codes.resize(static_cast<size_t>(meta.k));
    stripe_.scales.resize(static_cast<size_t>(meta.groups) * scale_bytes(meta.scale_type));
    stripe_.zeros.resize(static_cast<size_t>(meta.groups) * zero_bytes());
    floats_.resize(static_cast<size_t>(meta.k));
  }

  Status operator()(int64_t item) {
    const PackedLayout& layout = weights_.layout;
    const int64_t row = rows_[item];
    const std::byte* const panel = weights_.data.data() + row / kPanelColumns * layout.panel_bytes();
    const auto column = static_cast<int>(row % kPanelColumns);
    read_codes(panel, column);
    const size_t scale = scale_bytes(layout.scale_type), zero = zero_bytes();
    read_groups(panel + layout.scales_offset() + column * scale, layout.scale_row_bytes(), scale, stripe_.scales);
    if (zero != 0) read_groups(panel + layout.zeros_offset() + column * zero, layout.zero_row_bytes(), zero, stripe_.zeros);
    decode_rows(weights_.meta(), stripe_, row, 1, floats_.data());
    const size_t element = out_.dtype == MARLIN_F32 ? 4 : 2;
    encode_floats(out_.dtype, floats_.data(), layout.k, static_cast<std::byte*>(out_.data) + item * out_.stride * element);
    return {};
  }

 private:
  size_t zero_bytes() const { return static_cast<size_t>(weights_.layout.zero_row_bytes() / kPanelColumns); }

  void read_codes(const std::byte* panel, int column) {
    const PackedLayout& layout = weights_.layout;
    const int lines = layout.code_bits, slots_a_line = kBlockSlots / lines;  // 4 lines of 8 nibbles, 8 lines of 4 bytes
    for (int64_t block = 0; block < layout.slots / kBlockSlots; ++block) {
      const std::byte* const from = panel + layout.block_offset(column, block);
      uint8_t* const to = slot_codes_.data() + block * kBlockSlots;
      for (int line = 0; line < lines; ++line) {
        const auto word = load<uint32_t>(from + 64 * line);
        if (lines == 8) {
          store(to + slots_a_line * line, word);
        } else {
          store(to + slots_a_line * line, word & 0x0f0f0f0fu);
          store(to + slots_a_line * line + 4, word >> 4 & 0x0f0f0f0fu);
        }
      }
    }
    if (weights_.slot_to_k.empty()) {
      std::memcpy(stripe_.codes.data(), slot_codes_.data(), stripe_.codes.size());
      return;
    }
    for (size_t slot = 0; slot < slot_codes_.size(); ++slot)
      if (const int32_t k = weights_.slot_to_k[slot]; k >= 0) stripe_.codes[k] = slot_codes_[slot];
  }

  /// `from` is the row's first scale (or zero) in the first superblock.
  void read_groups(const std::byte* from, int64_t row_bytes, size_t size, std::vector<uint8_t>& to) const {
    const int in_super = weights_.layout.groups_per_super();
    for (size_t i = 0; i < groups_.size(); ++i) {
      const auto super = static_cast<int64_t>(i) / in_super, in = static_cast<int64_t>(i) % in_super;
      if (groups_[i] < 0) continue;
      std::memcpy(to.data() + groups_[i] * size, from + super * weights_.layout.super_bytes() + in * row_bytes, size);
    }
  }

  const CpuWeights& weights_;
  const std::vector<int32_t>& groups_;
  const std::span<const int64_t> rows_;
  const MatrixView& out_;
  std::vector<uint8_t> slot_codes_;
  Stripe stripe_;
  std::vector<float> floats_;
};

}  // namespace

Status unpack_rows(const CpuWeights& weights, std::span<const int64_t> rows, const MatrixView& out, TaskRunner& runner) {
  const std::vector<int32_t> groups = groups_of_slots(weights.meta(), weights.layout, weights.slot_to_k);
  return for_each_item(runner, static_cast<int64_t>(rows.size()), [&] { return RowUnpacker(weights, groups, rows, out); });
}

}  // namespace metal_marlin::cpu
