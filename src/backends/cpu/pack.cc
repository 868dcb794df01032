#include "backends/cpu/pack.h"

#include <algorithm>
#include <bit>
#include <cinttypes>
#include <cstring>
#include <utility>

#include "base/checked.h"
#include "core/parallel.h"
#include "core/slots.h"
#include "formats/decode.h"
#include "formats/format_table.h"
#include "formats/prune.h"

namespace metal_marlin::cpu {
namespace {

/// The codes and scales of padding decode to 0 and never to NaN. E8M0 has no 0 and takes 2^0,
/// because its codes are 0.
uint8_t padding_code(const WeightMeta& meta) {
  if (meta.zero_kind != ZeroKind::none) return 0;
  return static_cast<uint8_t>(format_row(meta.format)->zero_point());
}
uint8_t padding_scale_byte(ScaleType type) { return type == ScaleType::e8m0 ? 127 : 0; }

/// Packs panels one after another. Each thread has one packer.
class PanelPacker {
 public:
  PanelPacker(const WeightSource& source, const CpuWeights& out, const std::vector<int32_t>& groups)
      : source_(source),
        out_(out),
        groups_(groups),
        slot_codes_(static_cast<size_t>(out.layout.slots)) {}

  Status operator()(int64_t panel) {
    const PanelLayout& layout = out_.layout;
    const int64_t first = panel * kPanelColumns,
                  rows = std::min<int64_t>(kPanelColumns, layout.n - first);
    MARLIN_RETURN_IF_ERROR(source_.read(first, rows, stripe_));
    if (layout.sparse) MARLIN_RETURN_IF_ERROR(check_kept(source_.meta(), stripe_, first, rows));
    std::byte* const to = out_.data.data() + panel * layout.panel_bytes();
    for (int column = 0; column < kPanelColumns; ++column) {
      const int64_t row = column < rows ? column : kPaddingRow;
      order_codes(row);
      if (layout.sparse)
        write_kept(row, column, to);
      else if (layout.code_bits == 4)
        write_nibbles(column, to);
      else if (layout.code_bits == 8)
        write_bytes(column, to);
      else
        write_planes(column, to);
      write_scales(row, column, to + layout.scales_offset());
      write_zeros(row, column, to + layout.zeros_offset());
    }
    return {};
  }

 private:
  static constexpr int64_t kPaddingRow = -1;

  /// Puts the codes of one row into the order of the slots.
  void order_codes(int64_t row) {
    const uint8_t pad = padding_code(out_.meta());
    const int64_t k_count = out_.meta().k;
    if (row == kPaddingRow) {
      std::fill(slot_codes_.begin(), slot_codes_.end(), pad);
      return;
    }
    const uint8_t* const codes = stripe_.codes.data() + row * k_count;
    if (out_.slot_to_k.empty()) {
      std::copy_n(codes, k_count, slot_codes_.begin());
      for (size_t slot = static_cast<size_t>(k_count); slot < slot_codes_.size(); ++slot)
        slot_codes_[slot] = pad_of(row, slot);
      return;
    }
    for (size_t slot = 0; slot < slot_codes_.size(); ++slot) {
      const int32_t k = out_.slot_to_k[slot];
      slot_codes_[slot] = k >= 0 ? codes[k] : pad_of(row, slot);
    }
  }

  /// With integer zero points, the code of 0 is the zero of the slot's group (or the nearest code
  /// if the zero is 16).
  uint8_t pad_of(int64_t row, size_t slot) const {
    if (out_.meta().zero_kind != ZeroKind::integer) return padding_code(out_.meta());
    const int32_t group = groups_[slot / static_cast<size_t>(out_.layout.slot_group)];
    if (group < 0) return 0;
    return std::min<uint8_t>(
        stripe_.zeros[static_cast<size_t>(row * source_.meta().groups + group)],
        static_cast<uint8_t>((1 << out_.layout.code_bits) - 1));
  }

  void write_nibbles(int column, std::byte* panel) const {
    for (int64_t block = 0; block < out_.layout.slots / kBlockSlots; ++block) {
      const uint8_t* const codes = slot_codes_.data() + block * kBlockSlots;
      std::byte* const to =
          panel + out_.layout.block_offset(column, block) + column % kGroupColumns * 4;
      for (int line = 0; line < 4; ++line) {
        const auto eight = load<uint64_t>(codes + 8 * line);
        store(to + 64 * line, static_cast<uint32_t>(eight) | static_cast<uint32_t>(eight >> 32)
                                                                 << 4);
      }
    }
  }

  void write_bytes(int column, std::byte* panel) const {
    for (int64_t block = 0; block < out_.layout.slots / kBlockSlots; ++block) {
      const uint8_t* const codes = slot_codes_.data() + block * kBlockSlots;
      std::byte* const to =
          panel + out_.layout.block_offset(column, block) + column % kGroupColumns * 4;
      for (int line = 0; line < 8; ++line) std::memcpy(to + 64 * line, codes + 4 * line, 4);
    }
  }

  void write_planes(int column, std::byte* panel) const {
    const PanelLayout& layout = out_.layout;
    for (int64_t block = 0; block < layout.slots / kBlockSlots; ++block) {
      const uint8_t* const codes = slot_codes_.data() + block * kBlockSlots;
      std::byte* const to = panel + layout.block_offset(column, block) + column % kGroupColumns * 4;
      write_plane(codes, 0, layout.low_bits(), to);
      write_plane(codes, layout.low_bits(), layout.high_bits(), to + 64 * layout.low_bits());
    }
  }

  /// Writes `bits` bits of 32 codes, from bit `first` on: a dword of every line.
  static void write_plane(const uint8_t* codes, int first, int bits, std::byte* to) {
    const uint32_t mask = ((1u << bits) - 1u) * 0x01010101u;
    for (int line = 0; line < bits; ++line, to += 64) {
      uint32_t word = 0;
      for (int shift = 0; shift < 8; shift += bits, codes += 4)
        word |= (load<uint32_t>(codes) >> first & mask) << shift;
      store(to, word);
    }
  }

  /// Writes one row of 2:4 sparse codes and their positions.
  void write_kept(int64_t row, int column, std::byte* panel) const {
    const int64_t quads = out_.meta().k / 4;
    for (int64_t block = 0; block < out_.layout.slots / kBlockSlots; ++block) {
      auto* const group =
          reinterpret_cast<uint8_t*>(panel + out_.layout.block_offset(column, block));
      uint32_t positions = 0;
      for (int quad = 0; quad < kBlockSlots / 4; ++quad) {
        const int64_t in_row = block * (kBlockSlots / 4) + quad;
        const bool real = row != kPaddingRow && in_row < quads;
        const unsigned kept = real ? stripe_.kept[static_cast<size_t>(row * quads + in_row)] : 3;
        const int first = std::countr_zero(kept), second = std::countr_zero(kept & (kept - 1));
        positions |= static_cast<uint32_t>(first | second << 16) << 2 * quad;
        const uint8_t* const codes = slot_codes_.data() + 4 * in_row;
        uint8_t* const pair = group + quad / 4 * 64 + column % kGroupColumns * 4 + quad % 2;
        const bool high = quad % 4 >= 2;
        pair[0] = static_cast<uint8_t>(high ? pair[0] | codes[first] << 4 : codes[first]);
        pair[2] = static_cast<uint8_t>(high ? pair[2] | codes[second] << 4 : codes[second]);
      }
      store(group + kSparsePositions + column % kGroupColumns * 4, positions);
    }
  }

  /// `to` is the place of the scales of the panel's first superblock.
  void write_scales(int64_t row, int column, std::byte* to) const {
    const PanelLayout& layout = out_.layout;
    if (is_two_level(layout.scale_type))
      return write_two_level(row, column, layout.scale_type, stripe_.scales, stripe_.scale_factors,
                             to);
    const size_t size = scale_bytes(layout.scale_type);
    write_groups(row, stripe_.scales.data(), size, padding_scale_byte(layout.scale_type),
                 to + column * size, layout.scale_row_bytes());
  }

  void write_zeros(int64_t row, int column, std::byte* to) const {
    const PanelLayout& layout = out_.layout;
    if (layout.zero_kind == ZeroKind::none) return;
    if (layout.has_two_level_zeros())
      return write_two_level(row, column, layout.zero_type, stripe_.zeros, stripe_.zero_factors,
                             to);
    const auto size = static_cast<size_t>(layout.zero_row_bytes() / kPanelColumns);
    write_groups(row, stripe_.zeros.data(), size, 0, to + column * size, layout.zero_row_bytes());
  }

  /// Writes the integers and factors of one row. Padding has factors and integers of 0.
  void write_two_level(int64_t row, int column, ScaleType type,
                       const std::vector<uint8_t>& integers, const std::vector<uint8_t>& factors,
                       std::byte* to) const {
    const PanelLayout& layout = out_.layout;
    const WeightMeta& meta = source_.meta();
    const int in_super = layout.groups_per_super();
    for (int64_t super = 0; super < layout.superblocks(); ++super, to += layout.super_bytes()) {
      auto* const rows = reinterpret_cast<uint8_t*>(to) + column;
      for (int g = 0; g < in_super; ++g) {
        const int32_t group = groups_[static_cast<size_t>(super * in_super + g)];
        const bool real = row != kPaddingRow && group >= 0;
        const unsigned q =
            real ? integers[static_cast<size_t>(row * meta.groups + group)] : unsigned{0};
        if (type == ScaleType::s8) {
          rows[kPanelColumns * g] = static_cast<uint8_t>(q);
          continue;
        }
        put_bits(rows[kPanelColumns * (g / 2)], q & 15u, g % 2 * 4);
        if (layout.high_rows(type) != 0)
          put_bits(rows[kPanelColumns * (layout.low_rows(type) + g / 4)], q >> 4 & 3u, g % 4 * 2);
      }
      const int64_t block = super * kSuperSlots / kFactorSpan;
      const bool real = row != kPaddingRow && block < meta.factors();
      const auto at = static_cast<size_t>(row * meta.factors() + block) * kFactorBytes;
      store(to + layout.factors_offset(type) + column * static_cast<int>(kFactorBytes),
            real ? load<uint16_t>(factors.data() + at) : uint16_t{0});
    }
  }

  /// The first bits of a byte (shift 0) replace what it held.
  static void put_bits(uint8_t& byte, unsigned bits, int shift) {
    byte = static_cast<uint8_t>((shift == 0 ? 0u : byte) | bits << shift);
  }

  /// Writes the scales or zeros of one row, `size` bytes each; `to` is the place of the row in the
  /// first superblock.
  void write_groups(int64_t row, const uint8_t* from, size_t size, uint8_t pad, std::byte* to,
                    int64_t row_bytes) const {
    const int in_super = out_.layout.groups_per_super();
    for (size_t i = 0; i < groups_.size(); ++i) {
      const auto super = static_cast<int64_t>(i) / in_super,
                 in = static_cast<int64_t>(i) % in_super;
      std::byte* const at = to + super * out_.layout.super_bytes() + in * row_bytes;
      if (row == kPaddingRow || groups_[i] < 0) {
        std::memset(at, pad, size);
      } else {
        std::memcpy(at, from + static_cast<size_t>(row * source_.meta().groups + groups_[i]) * size,
                    size);
      }
    }
  }

  const WeightSource& source_;
  const CpuWeights& out_;
  const std::vector<int32_t>& groups_;
  Stripe stripe_;
  std::vector<uint8_t> slot_codes_;
};

Expansion expansion_of(marlin_format format) {
  if (format == MARLIN_IQ4) return Expansion::iq4;
  const int bits = format_row(format)->code_bits;
  return bits == 4 || bits == 8 ? Expansion::none : Expansion::integers;
}

void set_tensor_scales(CpuWeights& out) {
  const std::vector<TensorScale>& scales = out.meta().tensor_scales;
  if (std::all_of(scales.begin(), scales.end(), [](const TensorScale& t) { return t.value == 1; }))
    return;
  const auto columns = static_cast<size_t>(out.layout.panels() * kPanelColumns);
  out.column_multiplier.assign(columns, 1.0f);
  out.column_divisor.assign(columns, 1.0f);
  for (int64_t n = 0; n < out.layout.n; ++n) {
    const TensorScale& scale = *tensor_scale_of(out.meta(), n);
    (scale.divide ? out.column_divisor : out.column_multiplier)[n] = scale.value;
  }
}

}  // namespace

Result<std::unique_ptr<CpuWeights>> pack_weights(const WeightSource& source,
                                                 const Allocator& allocator, TaskRunner& runner) {
  auto out = std::make_unique<CpuWeights>();
  WeightMeta& meta = out->mutable_meta();
  meta = source.meta();
  PanelLayout& layout = out->layout;
  layout.n = meta.n;
  layout.k = meta.k;
  layout.code_bits = format_row(meta.format)->code_bits;
  layout.expansion = expansion_of(meta.format);
  layout.sparse = meta.sparse;
  layout.scale_type = meta.scale_type;
  layout.zero_kind = meta.zero_kind;
  layout.zero_type = meta.zero_type;
  MARLIN_ASSIGN(Slots slots, assign_slots(meta, layout.slot_costs()));
  layout.slots = slots.count;
  layout.slot_group = slots.group;

  const auto bytes =
      (Checked(layout.panels()) * Checked(layout.superblocks()) * Checked(layout.super_bytes()))
          .at_most(PTRDIFF_MAX);
  if (!bytes)
    return Status::error(MARLIN_E_SHAPE,
                         "packed weights [%" PRId64 ", %" PRId64 "] do not fit the address space",
                         meta.n, meta.k);
  MARLIN_RETURN_IF_ERROR(check_padding(meta, layout.panels() * kPanelColumns, *bytes));
  MARLIN_ASSIGN(out->data, Block::allocate(allocator, *bytes));
  set_tensor_scales(*out);

  const std::vector<int32_t> groups = groups_of_slots(meta, slots);
  out->slot_to_k = std::move(slots.slot_to_k);
  MARLIN_RETURN_IF_ERROR(
      for_each_item(runner, layout.panels(), [&] { return PanelPacker(source, *out, groups); }));
  return out;
}

}  // namespace metal_marlin::cpu
