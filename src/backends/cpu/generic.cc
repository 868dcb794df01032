// Portable C++ kernels for every format and any processor. Tests compare the other kernels with
// them.
//
//   packed stream --decode--> superblock in cache
//                             floats: w    [v][step][16 columns]  values
//                             int8:   code [v][slot][16 columns]  integers; kept: 1 or 0
//   packed A block            x      a slot of a row
//                             floats: acc[16] += x * w[v][step]
//                             int8:   dot[16] += x * code[v][slot], then sums += dot * (scale * d)
//
//   M: tiles of kRows rows, 1 or 4. N: 16 columns at a time, which compilers vectorize. K:
//   superblock, block, step.
//
// Decoding limits their speed: one function reads a code of any kind, slot by slot.
#include <bit>
#include <cstring>

#include "backends/cpu/kernels.h"
#include "formats/codecs.h"

namespace metal_marlin::cpu {
namespace {

/// Scales and zeros of one superblock as floats. Without zeros, `zeros` holds the implied zero
/// point: 8 or 0.
struct SuperScales {
  float scales[8][kPanelColumns];
  float zeros[8][kPanelColumns];
};

void decode_scales(ScaleType type, const uint8_t* p, int n, float* out) {
  const auto each = [&](size_t size, auto decode) {
    for (int i = 0; i < n; ++i) out[i] = decode(p + static_cast<size_t>(i) * size);
  };
  switch (type) {
    case ScaleType::f32:
      return each(4, [](const uint8_t* q) { return load<float>(q); });
    case ScaleType::f16:
      return each(2, [](const uint8_t* q) { return f16_to_f32(load<uint16_t>(q)); });
    case ScaleType::bf16:
      return each(2, [](const uint8_t* q) { return bf16_to_f32(load<uint16_t>(q)); });
    case ScaleType::e8m0:
      return each(1, [](const uint8_t* q) { return e8m0_to_f32(*q); });
    case ScaleType::e4m3:
      return each(1, [](const uint8_t* q) { return e4m3_to_f32(*q); });
    default:  // two-level and nested scales: decode_two_level, decode_nested
      return;
  }
}

/// The products of a superblock's integers and factors, which are exact.
void decode_two_level(const PanelLayout& layout, ScaleType type, const uint8_t* p,
                      float (*out)[kPanelColumns]) {
  const uint8_t* const factors = p + layout.factors_offset(type);
  for (int column = 0; column < kPanelColumns; ++column) {
    const float factor = f16_to_f32(load<uint16_t>(factors + 2 * column));
    for (int g = 0; g < layout.groups_per_super(); ++g)
      out[g][column] = factor * static_cast<float>(two_level_integer(layout, type, p + column, g));
  }
}

void decode_nested(const PanelLayout& layout, const uint8_t* panel, const uint8_t* super,
                   float (*out)[kPanelColumns]) {
  const NestedSuper nested(layout, panel, super);
  const uint8_t* bytes = super + layout.scales_offset();
  for (int g = 0; g < layout.groups_per_super(); ++g, bytes += kPanelColumns)
    for (int c = 0; c < kPanelColumns; ++c)
      out[g][c] = static_cast<float>(double{layout.scale_map[bytes[c]]} * nested.factors(g)[c] +
                                     nested.offsets[c]);
}

void decode_super(const PanelLayout& layout, CodeKind code, const uint8_t* super,
                  SuperScales& out) {
  const int n = layout.groups_per_super() * kPanelColumns;
  const uint8_t *scales = super + layout.scales_offset(), *packed = super + layout.zeros_offset();
  if (is_two_level(layout.scale_type))
    decode_two_level(layout, layout.scale_type, scales, out.scales);
  else
    decode_scales(layout.scale_type, scales, n, &out.scales[0][0]);
  if (layout.has_two_level_zeros())
    return decode_two_level(layout, layout.zero_type, packed, out.zeros);
  float* zeros = &out.zeros[0][0];
  if (layout.zero_kind == ZeroKind::additive) decode_scales(layout.zero_type, packed, n, zeros);
  if (layout.less_128)
    return correct_zeros(layout, packed, layout.groups_per_super(), 0, kPanelColumns,
                         &out.scales[0][0], zeros);
  if (layout.zero_kind == ZeroKind::additive) return;
  const auto fixed = static_cast<float>(code == CodeKind::u4 ? 8 : layout.zero_point());
  for (int i = 0; i < n; ++i)
    zeros[i] = layout.zero_kind == ZeroKind::integer ? static_cast<float>(packed[i]) : fixed;
}

/// A code, and whether it is kept. A slot that 2:4 sparse weights do not keep is 0, whatever its
/// zero and scale are.
struct Code {
  int value = 0;
  bool kept = true;
};

/// The bits of column c in slot `s` of a plane of a block.
int bits_at(const uint8_t* plane, int bits, int s, int c) {
  const int slots_a_line = kBlockSlots / bits;
  const int byte = plane[s / slots_a_line * 64 + 4 * c + s % 4];
  return byte >> s % slots_a_line / 4 * bits & ((1 << bits) - 1);
}

/// The line of a block that holds slot `s` of floats (layout.h), `slots` to a dword.
int line_of_slot(int s, int slots) {
  const int octet = s / 8, quad = s % 8 / 4, i = s % 4;  // slots i and i + 2 are a pair
  return slots == 1 ? octet * 8 + 2 * i + quad : octet * 4 + i % 2 * 2 + quad;
}

/// The code of column c of a column group in slot `s` of a block; `group` are the bytes of the
/// block.
Code code_at(const PanelLayout& layout, const uint8_t* group, int s, int c) {
  if (layout.code_bits == 8) return {static_cast<int8_t>(group[s / 4 * 64 + 4 * c + s % 4])};
  if (layout.expansion == Expansion::integers) {
    const int low = layout.low_bits(), high = layout.high_bits();
    const uint8_t* const second = group + 64 * low;
    return {bits_at(group, low, s, c) | (high == 0 ? 0 : bits_at(second, high, s, c) << low)};
  }
  if (layout.sparse) {
    const int quad = s / 4;
    const uint32_t positions = load<uint32_t>(group + kSparsePositions + 4 * c) >> 2 * quad;
    const int first = static_cast<int>(positions & 3u),
              second = static_cast<int>(positions >> 16 & 3u);
    if (s % 4 != first && s % 4 != second) return {0, false};
    return {group[quad / 4 * 64 + 4 * c + quad % 2 + (s % 4 == first ? 0 : 2)] >> quad % 4 / 2 * 4 &
            15};
  }
  const int code = bits_at(group, 4, s, c);
  return {layout.expansion == Expansion::iq4 ? static_cast<int>(kIq4[code]) : code};
}

/// Calls each(slot, v, c, code) for all of a superblock.
template <class Each>
void for_codes(const PanelLayout& layout, const uint8_t* super, Each each) {
  for (int block = 0; block < kBlocksPerSuper; ++block)
    for (int v = 0; v < kColumnGroups; ++v, super += layout.group_bytes())
      for (int s = 0; s < kBlockSlots; ++s)
        for (int c = 0; c < kGroupColumns; ++c)
          each(block * kBlockSlots + s, v, c, code_at(layout, super, s, c));
}

/// [v][step][16 columns], with steps in the order of f32 activations. Padded slots may hold any
/// value, because their activations are 0 and their scales are finite.
using FloatSuper = float[4][kSuperSlots][16];

/// The number of a real code, in units of its scale.
float real_value(const PanelLayout& layout, CodeKind code, const uint8_t* group, int s, int c) {
  switch (code) {
    case CodeKind::lut4:
      return layout.codebook[bits_at(group, 4, s, c)];
    case CodeKind::f32:
      return std::bit_cast<float>(load<uint32_t>(group + line_of_slot(s, 1) * 64 + 4 * c));
    default:
      break;
  }
  if (layout.expansion == Expansion::e4m3) return e4m3_to_f32(group[s / 4 * 64 + 4 * c + s % 4]);
  const auto half = load<uint16_t>(group + line_of_slot(s, 2) * 64 + 4 * c + s % 4 / 2 * 2);
  return code == CodeKind::f16 ? f16_to_f32(half) : bf16_to_f32(half);
}

void dequantize_real(const PanelArgs& args, const uint8_t* super, FloatSuper& w) {
  const PanelLayout& layout = *args.layout;
  SuperScales group;
  if (layout.has_nested_scales())
    decode_nested(layout, args.panel, super, group.scales);
  else
    decode_super(layout, args.code, super, group);
  for (int block = 0; block < kBlocksPerSuper; ++block)
    for (int v = 0; v < kColumnGroups; ++v, super += layout.group_bytes())
      for (int i = 0; i < kBlockSlots; ++i) {
        const int step = block * kBlockSlots + i, slot = slot_of_step(step);
        for (int c = 0; c < kGroupColumns; ++c)
          w[v][step][c] = real_value(layout, args.code, super, slot % kBlockSlots, c) *
                          group.scales[slot / layout.slot_group][16 * v + c];
      }
}

void dequantize_float(const PanelArgs& args, const uint8_t* super, FloatSuper& w) {
  const PanelLayout& layout = *args.layout;
  const CodeKind code = args.code;
  if (is_real(code)) return dequantize_real(args, super, w);
  SuperScales group;
  decode_super(layout, code, super, group);
  int step_of_slot[kSuperSlots];
  for (int i = 0; i < kSuperSlots; ++i) step_of_slot[slot_of_step(i)] = i;
  for_codes(layout, super, [&](int slot, int v, int c, Code q) {
    const int g = slot / layout.slot_group, column = 16 * v + c;
    const float s = group.scales[g][column], z = group.zeros[g][column];
    float value = 0;
    if (!q.kept)
      value = 0;
    else if (code == CodeKind::fp4)
      value = kE2m1[q.value] * s;
    else if (is_additive(
                 code))  // in double, where q * s is exact: one rounding, as decoding has it
      value = static_cast<float>(q.value * static_cast<double>(s) + static_cast<double>(z));
    else
      value = (static_cast<float>(q.value) - z) * s;
    w[v][step_of_slot[slot]][c] = value;
  });
}

/// Adds the products of a block to 16 columns of every row of a tile. `w`: [step][16 columns].
template <int kRows>
void add_float_block(const float (*w)[16], const uint32_t* a_block, float* sums) {
  for (int r = 0; r < kRows; ++r) {
    float acc[16];
    std::memcpy(acc, sums + r * kPanelColumns, sizeof acc);
    for (int i = 0; i < kBlockSlots; ++i) {
      const float x = std::bit_cast<float>(a_block[i * kRows + r]);
      for (int c = 0; c < 16; ++c) acc[c] += x * w[i][c];
    }
    std::memcpy(sums + r * kPanelColumns, acc, sizeof acc);
  }
}

template <int kRows>
void multiply_float(const PanelArgs& args) {
  const PanelLayout& layout = *args.layout;
  const ActivationLayout& act = args.activations;
  std::memset(
      args.sums, 0,
      static_cast<size_t>(args.tile_end - args.tile_begin) * kRows * kPanelColumns * sizeof(float));
  alignas(64) FloatSuper w;
  for (int64_t s = 0; s < layout.superblocks(); ++s) {
    dequantize_float(args, args.panel + s * layout.super_bytes(), w);
    for (int64_t tile = args.tile_begin; tile < args.tile_end; ++tile)
      for (int v = 0; v < 4; ++v) {
        float* sums = args.sums + (tile - args.tile_begin) * kRows * kPanelColumns + 16 * v;
        for (int b = 0; b < kBlocksPerSuper; ++b)
          add_float_block<kRows>(w[v] + b * kBlockSlots,
                                 args.packed_a + act.offset(tile, s * kBlocksPerSuper + b), sums);
      }
  }
}

/// [v][slot][16 columns]: the integer that the scale multiplies (FP4: 2 * value), and 1 for kept
/// weights, else 0.
struct IntSuper {
  int16_t code[4][kSuperSlots][16];
  int8_t kept[4][kSuperSlots][16];
};

void dequantize_int(const PanelLayout& layout, CodeKind code, const uint8_t* super,
                    SuperScales& group, IntSuper& w) {
  decode_super(layout, code, super, group);
  for_codes(layout, super, [&](int slot, int v, int c, Code q) {
    int value = q.value;
    if (code == CodeKind::fp4)
      value = static_cast<int>(2 * kE2m1[q.value]);
    else if (!is_additive(code))
      value = q.value - static_cast<int>(group.zeros[slot / layout.slot_group][16 * v + c]);
    w.code[v][slot][c] = static_cast<int16_t>(q.kept ? value : 0);
    w.kept[v][slot][c] = q.kept ? 1 : 0;
  });
}

/// Adds slots [first, first + count) of column group v to 16 columns of one row. It computes in
/// double, so that a huge scale times a huge d cannot overflow if the integer sum is 0, and so that
/// the sum rounds once.
void add_int_part(const IntSuper& w, int v, int first, const int8_t* x, int count,
                  const float* scales, const float* zeros, double d, double scale_factor,
                  float* sums) {
  int32_t dot[16] = {}, kept[16] = {};
  for (int i = 0; i < count; ++i)
    for (int c = 0; c < 16; ++c) dot[c] += x[i] * w.code[v][first + i][c];
  for (int i = 0; zeros != nullptr && i < count; ++i)
    for (int c = 0; c < 16; ++c) kept[c] += x[i] * w.kept[v][first + i][c];
  for (int c = 0; c < 16; ++c) {
    double sum =
        static_cast<double>(sums[c]) + dot[c] * (static_cast<double>(scales[c]) * scale_factor * d);
    if (zeros != nullptr) sum += kept[c] * (static_cast<double>(zeros[c]) * d);
    sums[c] = static_cast<float>(sum);
  }
}

/// Adds the products of block `b` of a superblock to 64 columns of every row of a tile.
template <int kRows>
void add_int8_block(const PanelArgs& args, const SuperScales& group, const IntSuper& w, int b,
                    const uint32_t* a_block, float* sums) {
  const int part = args.layout->slot_group == 16 ? 16 : kBlockSlots;
  const double factor = args.code == CodeKind::fp4 ? 0.5 : 1.0;
  for (int r = 0; r < kRows; ++r, sums += kPanelColumns) {
    int8_t x[kBlockSlots];
    for (int i = 0; i < 8; ++i) store(x + 4 * i, a_block[i * kRows + r]);
    const double d = static_cast<double>(std::bit_cast<float>(a_block[8 * kRows + r]));
    for (int first = 0; first < kBlockSlots; first += part)
      for (int v = 0; v < 4; ++v) {
        const int slot = b * kBlockSlots + first, g = slot / args.layout->slot_group;
        add_int_part(w, v, slot, x + first, part, group.scales[g] + 16 * v,
                     is_additive(args.code) ? group.zeros[g] + 16 * v : nullptr, d, factor,
                     sums + 16 * v);
      }
  }
}

template <int kRows>
void multiply_int8(const PanelArgs& args) {
  const PanelLayout& layout = *args.layout;
  const ActivationLayout& act = args.activations;
  std::memset(
      args.sums, 0,
      static_cast<size_t>(args.tile_end - args.tile_begin) * kRows * kPanelColumns * sizeof(float));
  SuperScales group;
  IntSuper w;
  for (int64_t s = 0; s < layout.superblocks(); ++s) {
    dequantize_int(layout, args.code, args.panel + s * layout.super_bytes(), group, w);
    for (int64_t tile = args.tile_begin; tile < args.tile_end; ++tile)
      for (int b = 0; b < kBlocksPerSuper; ++b) {
        const uint32_t* a_block = args.packed_a + act.offset(tile, s * kBlocksPerSuper + b);
        add_int8_block<kRows>(args, group, w, b, a_block,
                              args.sums + (tile - args.tile_begin) * kRows * kPanelColumns);
      }
  }
}

}  // namespace

void cpu_generic_gemv_any_i8(const PanelArgs& args) { multiply_int8<1>(args); }
void cpu_generic_dequant_any_i8(const PanelArgs& args) { multiply_int8<4>(args); }
void cpu_generic_gemv_any_f32(const PanelArgs& args) { multiply_float<1>(args); }
void cpu_generic_dequant_any_f32(const PanelArgs& args) { multiply_float<4>(args); }

}  // namespace metal_marlin::cpu
