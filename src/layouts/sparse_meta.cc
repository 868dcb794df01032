#include "layouts/sparse_meta.h"

#include <cinttypes>

namespace metal_marlin {
namespace {

Status mask_error(const TensorView& view, int64_t row, int64_t block, unsigned mask) {
  return view_error(view, MARLIN_E_FORMAT,
                    "row %" PRId64 ", block %" PRId64
                    ": expected two of four bits, found mask 0x%x",
                    row, block, mask);
}

Status tail_error(const TensorView& view, int64_t row, unsigned found) {
  return view_error(view, MARLIN_E_FORMAT,
                    "row %" PRId64 ": expected 0 in the bits behind the last block, found 0x%x",
                    row, found);
}

Status read_bitmask(const TensorView& view, int64_t row, int64_t k, uint8_t* kept) {
  const std::byte* from = view.data + row * view.row_stride;
  const int64_t blocks = k / 4;
  for (int64_t b = 0; b < blocks; ++b) {
    const unsigned mask = std::to_integer<unsigned>(from[b / 2]) >> b % 2 * 4 & 15u;
    if (std::popcount(mask) != 2) return mask_error(view, row, b, mask);
    kept[b] = static_cast<uint8_t>(mask);
  }
  const unsigned tail = blocks % 2 == 0 ? 0 : std::to_integer<unsigned>(from[blocks / 2]) >> 4;
  return tail == 0 ? Status() : tail_error(view, row, tail);
}

Status read_nibbles(const TensorView& view, int64_t row, int64_t k, uint8_t* kept) {
  const std::byte* from = view.data + row * view.row_stride * 2;
  const int64_t blocks = k / 4;
  for (int64_t b = 0; b < blocks; ++b) {
    const unsigned nibble = load<uint16_t>(from + b / 4 * 2) >> b % 4 * 4 & 15u;
    kept[b] = kKeptOfNibble[nibble];
    if (kept[b] == 0) return nibble_error(view, row, b, nibble);
  }
  const unsigned tail =
      blocks % 4 == 0 ? 0 : unsigned{load<uint16_t>(from + blocks / 4 * 2)} >> blocks % 4 * 4;
  return tail == 0 ? Status() : tail_error(view, row, tail);
}

}  // namespace

Status nibble_error(const TensorView& view, int64_t row, int64_t block, unsigned nibble) {
  return view_error(view, MARLIN_E_FORMAT,
                    "row %" PRId64 ", block %" PRId64
                    ": expected a nibble 4, 8, 9, 12, 13 or 14 (pos1 << 2 | pos0), found %u",
                    row, block, nibble);
}

Status check_row_meta(const TensorView& view, int64_t n, int64_t k) {
  MARLIN_RETURN_IF_ERROR(expect_dtype(view, {MARLIN_U8, MARLIN_I16}));
  return expect_shape(view, n, ceil_div(k, view.dtype == MARLIN_U8 ? 8 : 16), true);
}

Status read_row_meta(const TensorView& view, int64_t row, int64_t k, uint8_t* kept) {
  return view.dtype == MARLIN_U8 ? read_bitmask(view, row, k, kept)
                                 : read_nibbles(view, row, k, kept);
}

Status read_word_meta(const TensorView& view, int64_t row, int64_t k, uint8_t* kept) {
  const int64_t blocks = k / 4;
  for (int64_t b = 0; b < round_up(blocks, 8); ++b) {
    const unsigned nibble =
        load<uint32_t>(view.data + (b / 8 * view.row_stride + row) * 4) >> b % 8 * 4 & 15u;
    const uint8_t mask = kKeptOfNibble[nibble];
    if (mask == 0 && (b < blocks || nibble != 0)) return nibble_error(view, row, b, nibble);
    if (b < blocks) kept[b] = mask;
  }
  return {};
}

}  // namespace metal_marlin
