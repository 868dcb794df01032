#include "backends/cpu/activations.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "core/shapes.h"
#include "formats/codecs.h"

namespace metal_marlin::cpu {
namespace {

const std::byte* row_of(const PrepareArgs& args, int64_t row, size_t element) {
  return static_cast<const std::byte*>(args.a->data) +
         static_cast<size_t>(row * args.a->stride) * element;
}

/// Reads one block of one row as floats; slots without a k are 0.
void read_block(const PrepareArgs& args, int64_t row, int64_t block, float* x) {
  if (args.slot_to_k != nullptr) return gather_block(args, row, block, x);
  const size_t element = float_bytes(args.a->dtype);
  const int64_t first = block * kBlockSlots,
                n = std::clamp<int64_t>(args.a->cols - first, 0, kBlockSlots);
  if (n > 0)
    decode_floats(args.a->dtype, row_of(args, row, element) + static_cast<size_t>(first) * element,
                  n, x);
  std::fill(x + n, x + kBlockSlots, 0.0f);
}

/// The bits of the largest |x| of a block. They have the order of the floats; NaN and Inf come
/// last.
uint32_t largest_of(const float* x) {
  uint32_t largest = 0;
  for (int i = 0; i < kBlockSlots; ++i)
    largest = std::max(largest, std::bit_cast<uint32_t>(x[i]) & 0x7fffffffu);
  return largest;
}

/// The same of the group of blocks of a row that begins with `block`.
uint32_t largest_of_group(const PrepareArgs& args, int64_t row, int64_t block) {
  const int64_t end = std::min(args.group_blocks, args.layout.blocks - block) + block;
  uint32_t largest = 0;
  for (; block < end; ++block) {
    float x[kBlockSlots];
    read_block(args, row, block, x);
    largest = std::max(largest, largest_of(x));
  }
  return largest;
}

/// The scale d of numbers whose largest has these bits; NaN if they hold NaN or Inf.
float scale_of(uint32_t largest) {
  if (largest >= 0x7f800000u) return std::numeric_limits<float>::quiet_NaN();
  const float d = std::bit_cast<float>(largest) / 127.0f;
  return d > 0 ? d : 1;
}

/// Returns d.
float write_int8(const float* x, float d, const ActivationLayout& layout, uint32_t* a_block,
                 int row) {
  int8_t q[kBlockSlots] = {};
  if (!std::isnan(d))
    for (int i = 0; i < kBlockSlots; ++i) {
      // Adding 1.5 * 2^23 rounds to the nearest even integer without a call, which compilers could
      // not vectorize.
      constexpr float kRounder = 12582912.0f;
      // Near the smallest float, d may be much less than max / 127, and the quotient may exceed
      // 127.
      const float rounded = std::clamp(x[i] / d, -127.0f, 127.0f) + kRounder;
      q[i] =
          static_cast<int8_t>(std::bit_cast<int32_t>(rounded) - std::bit_cast<int32_t>(kRounder));
    }
  const uint32_t bias = layout.gathered ? 0x80808080u : 0;
  for (int s = 0; s < 8; ++s) a_block[layout.step_index(s, row)] = load<uint32_t>(q + 4 * s) ^ bias;
  a_block[8 * layout.tile_rows + row] = std::bit_cast<uint32_t>(d);
  const int part = layout.sums_per_block == 2 ? kBlockSlots / 2 : kBlockSlots;
  for (int p = 0; p < layout.sums_per_block; ++p) {
    int32_t sum = 0;
    for (int i = 0; i < part; ++i) sum += q[p * part + i];
    a_block[layout.sum_index(p, row)] = static_cast<uint32_t>(sum * layout.sum_factor);
  }
  return d;
}

void write_float_sums(const float* x, const ActivationLayout& layout, uint32_t* extras) {
  if (layout.sums_per_block == 0) return;
  const int part = kBlockSlots / layout.sums_per_block;
  for (int p = 0; p < layout.sums_per_block; ++p) {
    float sum = 0;
    for (int i = 0; i < part; ++i) sum += x[p * part + i];
    extras[p * layout.tile_rows] = std::bit_cast<uint32_t>(sum);
  }
}

bool holds_non_finite(const float* x) {
  return std::any_of(x, x + kBlockSlots, [](float f) {
    return (std::bit_cast<uint32_t>(f) & 0x7f800000u) == 0x7f800000u;
  });
}

/// Writes floats that are BF16 numbers, so that nothing is cut off, from step `first` on.
void write_bf16_steps(const float* x, const ActivationLayout& layout, int first, int row,
                      uint32_t* a_block) {
  for (int s = 0; s < 16; ++s) {
    const int low = layout.gathered ? 2 * s : first_slot_of_pair(s),
              high = low + (layout.gathered ? 1 : 2);
    a_block[layout.step_index(first + s, row)] =
        std::bit_cast<uint32_t>(x[low]) >> 16 | (std::bit_cast<uint32_t>(x[high]) & 0xffff0000u);
  }
}

void write_pieces(const float* x, const ActivationLayout& layout, int row, uint32_t* a_block) {
  float rest[kBlockSlots], piece[kBlockSlots];
  std::copy_n(x, kBlockSlots, rest);
  for (int p = 0; p < kPieces; ++p) {
    for (int i = 0; i < kBlockSlots; ++i) {
      piece[i] = bf16_piece(rest[i]);
      rest[i] = std::isfinite(rest[i]) ? rest[i] - piece[i] : 0;
    }
    write_bf16_steps(piece, layout, 16 * p, row, a_block);
  }
}

/// Returns d of an int8 block, whose group has a number with the bits `largest`, else 0.
float write_record(const float* x, uint32_t largest, const ActivationLayout& layout,
                   uint32_t* a_block, int row) {
  uint32_t* const extras = a_block + layout.steps() * layout.tile_rows + row;
  switch (layout.form) {
    case ActivationForm::int8:
      return write_int8(x, scale_of(largest), layout, a_block, row);
    case ActivationForm::bf16:
      write_bf16_steps(x, layout, 0, row, a_block);
      break;
    case ActivationForm::bf16x3:
      write_pieces(x, layout, row, a_block);
      break;
    case ActivationForm::f32:
      for (int s = 0; s < 32; ++s)
        a_block[layout.step_index(s, row)] = std::bit_cast<uint32_t>(x[layout.slot(s)]);
      break;
  }
  write_float_sums(x, layout, extras);
  return 0;
}

}  // namespace

void gather_block(const PrepareArgs& args, int64_t row, int64_t block, float* x) {
  const size_t element = float_bytes(args.a->dtype);
  const std::byte* from = row_of(args, row, element);
  for (int i = 0; i < kBlockSlots; ++i) {
    const int64_t k = args.slot_to_k[block * kBlockSlots + i];
    x[i] = 0;
    if (k >= 0) decode_floats(args.a->dtype, from + static_cast<size_t>(k) * element, 1, &x[i]);
  }
}

void prepare_activations(const PrepareArgs& args, int64_t tile_begin, int64_t tile_end) {
  const ActivationLayout& layout = args.layout;
  for (int64_t tile = tile_begin; tile < tile_end; ++tile) {
    const bool int8 = layout.form == ActivationForm::int8, seeds_nan = layout.gathered && !int8;
    uint32_t* const row_stats = args.out + layout.rows_offset(tile);
    DRange range(row_stats, int8 ? layout.tile_rows : 0);
    for (int r = 0; seeds_nan && r < layout.tile_rows; ++r) row_stats[r] = 0;
    uint32_t largest[kMostTileRows] = {};  // of the group at hand of each row
    for (int64_t block = 0; block < layout.blocks; ++block)
      for (int r = 0; r < layout.written_rows(tile); ++r) {
        const int64_t row = tile * layout.tile_rows + r;
        float x[kBlockSlots] = {};
        if (row < args.rows) read_block(args, args.row_of_a(row), block, x);
        if (int8 && args.group_blocks == 1)
          largest[r] = largest_of(x);
        else if (int8 && row < args.rows && block % args.group_blocks == 0)
          largest[r] = largest_of_group(args, args.row_of_a(row), block);
        const float d =
            write_record(x, largest[r], layout, args.out + layout.offset(tile, block), r);
        if (seeds_nan && holds_non_finite(x))
          row_stats[r] = std::bit_cast<uint32_t>(std::numeric_limits<float>::quiet_NaN());
        if (int8) range.add(r, d);
      }
  }
}

}  // namespace metal_marlin::cpu
