#include "backends/cpu/pack.h"

#include <algorithm>
#include <bit>
#include <cinttypes>
#include <cstring>
#include <utility>

#include "backends/cpu/activations.h"
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
        groups_per_super_(out.layout.groups_per_super()),
        group_bytes_(out.layout.group_bytes()),
        scales_at_(out.layout.scales_offset()),
        zeros_at_(out.layout.zeros_offset()),
        super_bytes_(out.layout.super_bytes()) {}

  Status operator()(int64_t panel) {
    const PanelLayout& layout = out_.layout;
    const int64_t first = panel * kPanelColumns,
                  rows = std::min<int64_t>(kPanelColumns, layout.n - first);
    MARLIN_RETURN_IF_ERROR(source_.read(first, rows, stripe_));
    if (layout.sparse) MARLIN_RETURN_IF_ERROR(check_kept(source_.meta(), stripe_, first, rows));
    std::byte* to = out_.data.data() + panel * layout.panel_bytes();
    // A superblock stays in L1 while its 64 columns, which share cache lines, are written.
    for (int64_t super = 0; super < layout.superblocks(); ++super, to += super_bytes_)
      for (int column = 0; column < kPanelColumns; ++column) {
        const int64_t row = column < rows ? column : kPaddingRow;
        write_codes(row, super, column, to);
        write_scales(row, super, column, to + scales_at_);
        write_zeros(row, super, column, to + zeros_at_);
      }
    if (layout.has_nested_scales()) write_nested(rows, to);
    return {};
  }

 private:
  static constexpr int64_t kPaddingRow = -1;
  static constexpr int kMostGroups = kSuperSlots / 16;  // of a superblock

  void write_codes(int64_t row, int64_t super, int column, std::byte* to) {
    const PanelLayout& layout = out_.layout;
    if (layout.code_bits == 16) return write_floats<uint16_t>(row, super, column, to);
    if (layout.code_bits == 32) return write_floats<uint32_t>(row, super, column, to);
    const auto* codes = slots_of<uint8_t>(row, super);
    if (layout.sparse) return write_kept(row, super, codes, column, to);
    for (int block = 0; block < kBlocksPerSuper; ++block, codes += kBlockSlots) {
      std::byte* const at = to + place_of(column, block);
      if (layout.code_bits == 4)
        write_nibbles(codes, at);
      else
        write_planes(codes, at);
    }
  }

  /// The place of a column's first dword of a block in a superblock.
  int64_t place_of(int column, int block) const {
    return (block * kColumnGroups + column / kGroupColumns) * group_bytes_ +
           column % kGroupColumns * 4;
  }

  /// Writes floats, which are their own codes, of kBytes each.
  template <class Float>
  void write_floats(int64_t row, int64_t super, int column, std::byte* to) {
    const auto* floats = reinterpret_cast<const uint8_t*>(slots_of<Float>(row, super));
    const auto at_slot = [&](int slot) { return load<Float>(floats + slot * sizeof(Float)); };
    for (int block = 0; block < kBlocksPerSuper; ++block, floats += kBlockSlots * sizeof(Float)) {
      std::byte* at = to + place_of(column, block);
      constexpr int kSlotsOfDword = 4 / sizeof(Float);
      for (int line = 0; line < kBlockSlots / kSlotsOfDword; ++line, at += 64) {
        if constexpr (kSlotsOfDword == 1) {
          store(at, at_slot(slot_of_step(line)));
        } else {
          const int slot = first_slot_of_pair(line);
          store(at, at_slot(slot) | uint32_t{at_slot(slot + 2)} << 16);
        }
      }
    }
  }

  /// The codes of one row in a superblock, in the order of the slots.
  template <class Code>
  const Code* slots_of(int64_t row, int64_t super) {
    const int64_t first = super * kSuperSlots, k_count = out_.meta().k;
    const auto* const codes =
        reinterpret_cast<const Code*>(stripe_.codes.data()) + std::max<int64_t>(row, 0) * k_count;
    auto* const padded = reinterpret_cast<Code*>(super_codes_);
    const bool plain = out_.slot_to_k.empty();
    if (row != kPaddingRow && plain && first + kSuperSlots <= k_count) return codes + first;
    for (int i = 0; i < kSuperSlots; ++i) {
      const int64_t slot = first + i;
      int64_t k = slot < k_count ? slot : -1;
      if (!plain) k = out_.slot_to_k[static_cast<size_t>(slot)];
      if (row == kPaddingRow)
        padded[i] = padding_code(out_.meta());
      else
        padded[i] = k >= 0 ? codes[k] : Code{pad_of(row, slot)};
    }
    return padded;
  }

  /// With integer zero points, the code of 0 is the zero of the slot's group (or the nearest code
  /// if no code equals the zero).
  uint8_t pad_of(int64_t row, int64_t slot) const {
    if (out_.meta().zero_kind != ZeroKind::integer) return padding_code(out_.meta());
    const int32_t group = groups_[static_cast<size_t>(slot / out_.layout.slot_group)];
    if (group < 0) return 0;
    return std::min<uint8_t>(
        stripe_.zeros[static_cast<size_t>(row * source_.meta().groups + group)],
        static_cast<uint8_t>((1 << out_.layout.code_bits) - 1));
  }

  static void write_nibbles(const uint8_t* codes, std::byte* to) {
    for (int line = 0; line < 4; ++line) {
      const auto eight = load<uint64_t>(codes + 8 * line);
      store(to + 64 * line, static_cast<uint32_t>(eight) | static_cast<uint32_t>(eight >> 32) << 4);
    }
  }

  void write_planes(const uint8_t* codes, std::byte* to) const {
    const int low = out_.layout.low_bits(), high = out_.layout.high_bits();
    const uint32_t flip = out_.layout.flipped_bits();
    if (low == 8) return write_plane<8>(codes, 0, flip, to);
    if (low == 4)
      write_plane<4>(codes, 0, flip, to);
    else
      write_plane<2>(codes, 0, flip, to);
    if (high == 2) write_plane<2>(codes, low, 0, to + 64 * low);
    if (high == 1) write_plane<1>(codes, low, 0, to + 64 * low);
  }

  /// Writes kBits bits of 32 codes, from bit `first` on: a dword of every line, of which `flip`
  /// flips bits.
  template <int kBits>
  static void write_plane(const uint8_t* codes, int first, uint32_t flip, std::byte* to) {
    constexpr uint32_t kMask = ((1u << kBits) - 1u) * 0x01010101u;
    for (int line = 0; line < kBits; ++line, to += 64) {
      uint32_t word = 0;
      for (int shift = 0; shift < 8; shift += kBits, codes += 4)
        word |= (load<uint32_t>(codes) >> first & kMask) << shift;
      store(to, word ^ flip);
    }
  }

  /// Writes one row of 2:4 sparse codes and their positions.
  void write_kept(int64_t row, int64_t super, const uint8_t* codes, int column,
                  std::byte* to) const {
    constexpr int kQuads = kBlockSlots / 4;
    const int64_t quads = out_.meta().k / 4;
    for (int block = 0; block < kBlocksPerSuper; ++block) {
      auto* const dword = reinterpret_cast<uint8_t*>(to + place_of(column, block));
      uint32_t positions = 0;
      for (int quad = 0; quad < kQuads; ++quad, codes += 4) {
        const int64_t in_row = (super * kBlocksPerSuper + block) * kQuads + quad;
        const bool real = row != kPaddingRow && in_row < quads;
        const unsigned kept = real ? stripe_.kept[static_cast<size_t>(row * quads + in_row)] : 3;
        const int first = std::countr_zero(kept), second = std::countr_zero(kept & (kept - 1));
        positions |= static_cast<uint32_t>(first | second << 16) << 2 * quad;
        uint8_t* const pair = dword + quad / 4 * 64 + quad % 2;
        const bool high = quad % 4 >= 2;
        pair[0] = static_cast<uint8_t>(high ? pair[0] | codes[first] << 4 : codes[first]);
        pair[2] = static_cast<uint8_t>(high ? pair[2] | codes[second] << 4 : codes[second]);
      }
      store(dword + kSparsePositions, positions);
    }
  }

  /// `to` is the place of the superblock's scales.
  void write_scales(int64_t row, int64_t super, int column, std::byte* to) const {
    const PanelLayout& layout = out_.layout;
    if (is_two_level(layout.scale_type))
      return write_two_level(row, super, column, layout.scale_type, stripe_.scales,
                             stripe_.scale_factors, 0, to);
    write_groups(row, super, column, stripe_.scales, scale_bytes(layout.scale_type),
                 padding_scale_byte(layout.scale_type), to);
  }

  void write_zeros(int64_t row, int64_t super, int column, std::byte* to) const {
    const PanelLayout& layout = out_.layout;
    if (layout.zero_kind == ZeroKind::none) return;
    if (layout.has_two_level_zeros())
      return write_two_level(row, super, column, layout.zero_type, stripe_.zeros,
                             stripe_.zero_factors, kHalfSign, to);
    write_groups(row, super, column, stripe_.zeros,
                 static_cast<size_t>(layout.zero_row_bytes() / kPanelColumns), 0, to);
  }

  /// The group of the file for slot group `g` of a superblock, or -1 for padding.
  int32_t group_of(int64_t row, int64_t super, int g) const {
    if (row == kPaddingRow) return -1;
    const auto i = static_cast<size_t>(super * groups_per_super_ + g);
    return i < groups_.size() ? groups_[i] : -1;
  }

  /// Writes the scales or zeros of one row in a superblock, `size` bytes each: 1, 2 or 4.
  void write_groups(int64_t row, int64_t super, int column, const std::vector<uint8_t>& from,
                    size_t size, uint8_t pad, std::byte* to) const {
    if (size == 1) return write_groups_of<uint8_t>(row, super, column, from, pad, to);
    const unsigned padding = pad * 0x01010101u;
    if (size == 2)
      return write_groups_of<uint16_t>(row, super, column, from, static_cast<uint16_t>(padding),
                                       to);
    write_groups_of<uint32_t>(row, super, column, from, padding, to);
  }
  template <class Bytes>
  void write_groups_of(int64_t row, int64_t super, int column, const std::vector<uint8_t>& from,
                       Bytes pad, std::byte* to) const {
    to += static_cast<size_t>(column) * sizeof(Bytes);
    const uint8_t* const of_row =
        from.data() + row * source_.meta().groups * int64_t{sizeof(Bytes)};
    for (int g = 0; g < groups_per_super_; ++g, to += kPanelColumns * sizeof(Bytes)) {
      const int32_t group = group_of(row, super, g);
      store(to, group < 0 ? pad : load<Bytes>(of_row + group * int64_t{sizeof(Bytes)}));
    }
  }

  /// Writes the integers and the factor of one row in a superblock; `sign` flips the bits of the
  /// factor. Padding has zeros of both.
  void write_two_level(int64_t row, int64_t super, int column, ScaleType type,
                       const std::vector<uint8_t>& integers, const std::vector<uint8_t>& factors,
                       uint16_t sign, std::byte* to) const {
    const WeightMeta& meta = source_.meta();
    uint8_t q[kMostGroups] = {};
    for (int g = 0; g < groups_per_super_; ++g) {
      const int32_t group = group_of(row, super, g);
      if (group >= 0) q[g] = integers[static_cast<size_t>(row * meta.groups + group)];
    }
    auto* at_row = reinterpret_cast<uint8_t*>(to) + column;
    const auto write_row = [&](unsigned byte) {
      *at_row = static_cast<uint8_t>(byte);
      at_row += kPanelColumns;
    };
    if (type == ScaleType::s8) {
      for (int g = 0; g < groups_per_super_; ++g) write_row(q[g]);
    } else {
      for (int g = 0; g < groups_per_super_; g += 2) write_row((q[g] & 15u) | q[g + 1] << 4);
    }
    if (two_level_high_rows(type, groups_per_super_) != 0) {
      const auto high = [&](int g) { return q[g] >> 4 & 3u; };
      for (int g = 0; g < groups_per_super_; g += 4)
        write_row(high(g) | high(g + 1) << 2 | high(g + 2) << 4 | high(g + 3) << 6);
    }
    const int64_t factor = super * kSuperSlots / kFactorSpan;
    const bool real = row != kPaddingRow && factor < meta.factors();
    const auto at = static_cast<size_t>(row * meta.factors() + factor) * kFactorBytes;
    store(at_row - column + column * static_cast<int>(kFactorBytes),
          real ? static_cast<uint16_t>(load<uint16_t>(factors.data() + at) ^ sign) : uint16_t{0});
  }

  /// Writes the offsets and factors of nested scales. Padding has zeros of both.
  void write_nested(int64_t rows, std::byte* to) const {
    const PanelLayout& layout = out_.layout;
    const int64_t runs = ceil_div(layout.slots, layout.factor_slots),
                  run_groups = layout.factor_slots / layout.slot_group;
    const auto copy = [](const std::vector<uint8_t>& from, int64_t i, std::byte* at) {
      store(at, load<uint32_t>(from.data() + i * int64_t{sizeof(float)}));
    };
    std::memset(to, 0, static_cast<size_t>(layout.nested_bytes()));
    for (int64_t row = 0; row < rows; ++row, to += sizeof(float)) {
      std::byte* at = to;
      copy(stripe_.scale_offsets, row, at);
      for (int64_t run = 0; run < runs; ++run) {
        at += kPanelColumns * sizeof(float);
        const int32_t group = groups_[static_cast<size_t>(run * run_groups)];
        if (group >= 0) copy(stripe_.scale_factors, row * source_.meta().groups + group, at);
      }
    }
  }

  const WeightSource& source_;
  const CpuWeights& out_;
  const std::vector<int32_t>& groups_;
  // Parts of the layout, which would be computed for every column.
  const int groups_per_super_;
  const int64_t group_bytes_, scales_at_, zeros_at_, super_bytes_;
  Stripe stripe_;
  alignas(4) uint8_t super_codes_[kSuperSlots * 4] = {};
};

Expansion expansion_of(marlin_format format) {
  if (format == MARLIN_FORMAT_IQ4) return Expansion::iq4;
  if (format == MARLIN_FORMAT_FP8) return Expansion::e4m3;
  const int bits = format_row(format)->code_bits;
  return bits == 4 || bits >= 8 ? Expansion::none : Expansion::integers;
}

void set_codebook(const WeightMeta& meta, PanelLayout& layout) {
  const float* const fixed = format_row(meta.format)->codebook;
  if (fixed != nullptr)
    std::copy_n(fixed, 16, layout.codebook);
  else
    std::copy(meta.codebook.begin(), meta.codebook.end(), layout.codebook);
}

void set_tensor_scales(CpuWeights& out) {
  const std::vector<TensorScale>& scales = out.meta().tensor_scales;
  const auto is_one = [](const TensorScale& t) { return t.value == 1 && t.divisor == 1; };
  if (std::all_of(scales.begin(), scales.end(), is_one)) return;
  const auto columns = static_cast<size_t>(out.layout.panels() * kPanelColumns);
  out.column_multiplier.assign(columns, 1.0f);
  out.column_divisor.assign(columns, 1.0f);
  for (int64_t n = 0; n < out.layout.n; ++n) {
    const TensorScale& scale = *tensor_scale_of(out.meta(), n);
    out.column_multiplier[n] = scale.divide ? 1 : scale.value;
    out.column_divisor[n] = scale.divide ? scale.value : scale.divisor;
  }
}

/// The slots that share a factor of nested scales.
int64_t factor_slots(const WeightMeta& meta, bool has_index, const Slots& slots) {
  if (has_index) return slots.group;
  if (meta.groups == 1) return slots.count;
  const auto run = (Checked(meta.factor_groups) * Checked(meta.group_size)).get();
  return run && *run < static_cast<uint64_t>(slots.count) ? static_cast<int64_t>(*run)
                                                          : slots.count;
}

/// Everything of the layout that does not depend on the slots.
PanelLayout layout_of(const WeightMeta& meta) {
  PanelLayout layout;
  layout.n = meta.n;
  layout.k = meta.k;
  layout.code_bits = format_row(meta.format)->code_bits;
  layout.expansion = expansion_of(meta.format);
  layout.less_128 = meta.format == MARLIN_FORMAT_UINT8;
  set_codebook(meta, layout);
  layout.sparse = meta.sparse;
  layout.scale_type = meta.scale_type;
  layout.zero_kind = meta.zero_kind;
  layout.zero_type = meta.zero_type;
  return layout;
}

/// Completes the layout with its slots, and returns the packed size.
Result<uint64_t> set_slots(const WeightMeta& meta, bool has_index, const Slots& slots,
                           PanelLayout& layout) {
  layout.slots = slots.count;
  layout.slot_group = slots.group;
  if (meta.has_nested_scales()) {
    layout.scale_map = meta.scale_map.data();
    layout.factor_slots = factor_slots(meta, has_index, slots);
  }
  const auto size =
      (Checked(layout.panels()) * (Checked(layout.superblocks()) * Checked(layout.super_bytes()) +
                                   Checked(layout.nested_bytes())))
          .at_most(PTRDIFF_MAX);
  if (!size)
    return Status::error(MARLIN_E_SHAPE,
                         "packed weights [%" PRId64 ", %" PRId64 "] do not fit the address space",
                         meta.n, meta.k);
  return *size;
}

/// Fills in the meta and the layout of `out`, and returns the slots. `*bytes` is the packed size.
Result<Slots> lay_out(const WeightMeta& from, CpuWeights& out, uint64_t* bytes) {
  WeightMeta& meta = out.mutable_meta();
  meta = from;
  out.layout = layout_of(meta);
  MARLIN_ASSIGN(Slots slots, assign_slots(meta, out.layout.slot_costs()));
  MARLIN_ASSIGN(*bytes, set_slots(meta, !meta.group_index.empty(), slots, out.layout));
  return slots;
}

}  // namespace

Status check_packed(const PackedMatrix& matrix, uint64_t bytes, bool has_index) {
  MARLIN_RETURN_IF_ERROR(check_meta_but_index(matrix.meta, has_index));
  WeightMeta meta = matrix.meta;
  meta.group_index = {};
  PanelLayout layout = layout_of(meta);
  MARLIN_ASSIGN(const Slots slots, has_index ? own_slots(matrix, kSuperSlots)
                                             : assign_slots(meta, layout.slot_costs()));
  MARLIN_ASSIGN(const uint64_t expected, set_slots(meta, has_index, slots, layout));
  return check_numbers(matrix, bytes, {expected, slots.count, slots.group});
}

Result<std::unique_ptr<CpuWeights>> pack_weights(const WeightSource& source,
                                                 const Allocator& allocator, TaskRunner& runner) {
  auto out = std::make_unique<CpuWeights>();
  uint64_t bytes = 0;
  MARLIN_ASSIGN(Slots slots, lay_out(source.meta(), *out, &bytes));
  const WeightMeta& meta = out->meta();
  MARLIN_ASSIGN(out->data, Block::allocate(allocator, bytes));
  set_tensor_scales(*out);

  const std::vector<int32_t> groups = groups_of_slots(meta, slots);
  out->slot_to_k = std::move(slots.slot_to_k);
  MARLIN_RETURN_IF_ERROR(for_each_item(runner, out->layout.panels(),
                                       [&] { return PanelPacker(source, *out, groups); }));
  return out;
}

Result<uint64_t> packed_bytes(const WeightMeta& meta) {
  CpuWeights planned;
  uint64_t bytes = 0;
  MARLIN_ASSIGN(const Slots slots, lay_out(meta, planned, &bytes));
  return bytes + slots.slot_to_k.size() * sizeof(int32_t) + sizeof(CpuWeights);
}

PackedMatrix packed_matrix(const CpuWeights& weights) {
  return {weights.meta(),
          weights.layout.slots,
          weights.layout.slot_group,
          0,
          {weights.data.data(), static_cast<size_t>(weights.layout.bytes())}};
}

Result<std::unique_ptr<CpuWeights>> adopt_weights(const PackedMatrix& matrix,
                                                  std::shared_ptr<const void> memory) {
  auto out = std::make_unique<CpuWeights>();
  uint64_t bytes = 0;
  MARLIN_RETURN_IF_ERROR(
      check_packed(matrix, matrix.data.size(), !matrix.meta.group_index.empty()));
  MARLIN_RETURN_IF_ERROR(check_meta(matrix.meta));
  MARLIN_ASSIGN(Slots slots, lay_out(matrix.meta, *out, &bytes));
  MARLIN_RETURN_IF_ERROR(
      check_numbers(matrix, matrix.data.size(), {bytes, slots.count, slots.group}));
  if (reinterpret_cast<uintptr_t>(matrix.data.data()) % Block::kAlign != 0)
    return Status::error(MARLIN_E_FORMAT,
                         "packed weights: expected an address of whole lines of "
                         "%zu bytes",
                         Block::kAlign);
  out->slot_to_k = std::move(slots.slot_to_k);
  out->data = Block::borrow(std::move(memory), matrix.data.data(), matrix.data.size());
  set_tensor_scales(*out);
  return out;
}

}  // namespace metal_marlin::cpu
