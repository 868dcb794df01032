#include "checkpoints/sparse.h"

#include <cinttypes>

#include "checkpoints/operands.h"
#include "formats/decode.h"
#include "formats/format_table.h"

namespace metal_marlin {
namespace {

Status mask_error(const TensorView& view, int64_t row, int64_t block, unsigned mask) {
  return view_error(view, MARLIN_E_FORMAT, "row %" PRId64 ", block %" PRId64 ": expected two of four bits, found mask 0x%x",
                    row, block, mask);
}

Status tail_error(const TensorView& view, int64_t row, unsigned found) {
  return view_error(view, MARLIN_E_FORMAT, "row %" PRId64 ": expected 0 in the bits behind the last block, found 0x%x", row,
                    found);
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
  const unsigned tail = blocks % 4 == 0 ? 0 : unsigned{load<uint16_t>(from + blocks / 4 * 2)} >> blocks % 4 * 4;
  return tail == 0 ? Status() : tail_error(view, row, tail);
}

/// Finds the kept elements of a matrix that only looks dense.
class ObeyingSource final : public WeightSource {
 public:
  ObeyingSource(std::unique_ptr<WeightSource> dense, WeightMeta meta) : dense_(std::move(dense)) { meta_ = std::move(meta); }

  Status read(int64_t first, int64_t count, Stripe& out) const override {
    MARLIN_RETURN_IF_ERROR(dense_->read(first, count, out));
    const int64_t blocks = meta_.k / 4;
    out.kept.resize(static_cast<size_t>(count * blocks));
    for (int64_t r = 0; r < count; ++r) {
      int64_t current = -1;
      uint16_t zero_codes = 0;
      for (int64_t b = 0; b < blocks; ++b) {
        const int64_t group = 4 * b / meta_.group_size;  // sizes are multiples of 4
        if (group != current) zero_codes = codes_of_zero(out, r, current = group);
        const uint8_t* codes = out.codes.data() + r * meta_.k + 4 * b;
        unsigned mask = 0;
        for (unsigned i = 0; i < 4; ++i) mask |= (zero_codes >> (codes[i] & 15) & 1u) == 0 ? 1u << i : 0u;
        if (std::popcount(mask) > 2) {
          return Status::error(MARLIN_E_FORMAT,
                               "values: row %" PRId64 ", block %" PRId64 " (columns %" PRId64 "..%" PRId64
                               "): expected at most two elements that are not 0 (2:4), found %d",
                               first + r, b, 4 * b, 4 * b + 3, std::popcount(mask));
        }
        while (std::popcount(mask) < 2) mask |= mask + 1;  // the lowest that is not set
        out.kept[static_cast<size_t>(r * blocks + b)] = static_cast<uint8_t>(mask);
      }
    }
    return {};
  }

 private:
  /// Bit c: code c stands for 0 in this group.
  uint16_t codes_of_zero(const Stripe& stripe, int64_t row, int64_t group) const {
    if (meta_.zero_kind == ZeroKind::none) return format_row(meta_.format)->codebook != nullptr ? 1u << 0 | 1u << 8 : 1u << 8;
    if (meta_.zero_kind == ZeroKind::integer) {
      return static_cast<uint16_t>(1u << stripe.zeros[static_cast<size_t>(row * meta_.groups + group)]);
    }
    const GroupScale scale = decode_group(meta_, stripe, row, group);
    unsigned codes = 0;
    for (uint8_t c = 0; c < 16; ++c) codes |= decode_value(meta_, c, scale, nullptr) == 0 ? 1u << c : 0u;
    return static_cast<uint16_t>(codes);
  }

  std::unique_ptr<WeightSource> dense_;
};

}  // namespace

Status nibble_error(const TensorView& view, int64_t row, int64_t block, unsigned nibble) {
  return view_error(view, MARLIN_E_FORMAT,
                    "row %" PRId64 ", block %" PRId64 ": expected a nibble 4, 8, 9, 12, 13 or 14 (pos1 << 2 | pos0), found %u",
                    row, block, nibble);
}

Status check_row_meta(const TensorView& view, int64_t n, int64_t k) {
  MARLIN_RETURN_IF_ERROR(expect_dtype(view, {MARLIN_U8, MARLIN_I16}));
  return expect_shape(view, n, ceil_div(k, view.dtype == MARLIN_U8 ? 8 : 16), true);
}

Status read_row_meta(const TensorView& view, int64_t row, int64_t k, uint8_t* kept) {
  return view.dtype == MARLIN_U8 ? read_bitmask(view, row, k, kept) : read_nibbles(view, row, k, kept);
}

Status read_word_meta(const TensorView& view, int64_t row, int64_t k, uint8_t* kept) {
  const int64_t blocks = k / 4;
  for (int64_t b = 0; b < round_up(blocks, 8); ++b) {
    const unsigned nibble = load<uint32_t>(view.data + (b / 8 * view.row_stride + row) * 4) >> b % 8 * 4 & 15u;
    const uint8_t mask = kKeptOfNibble[nibble];
    if (mask == 0 && (b < blocks || nibble != 0)) return nibble_error(view, row, b, nibble);
    if (b < blocks) kept[b] = mask;
  }
  return {};
}

Result<std::unique_ptr<WeightSource>> make_obeying(std::unique_ptr<WeightSource> dense) {
  WeightMeta meta = dense->meta();
  if (meta.sparse) return Status::error(MARLIN_E_ARGUMENT, "flags: OBEYS_2_4 is about dense values, found 2:4 metadata");
  meta.sparse = true;
  MARLIN_RETURN_IF_ERROR(check_meta(meta));
  return std::unique_ptr<WeightSource>(std::make_unique<ObeyingSource>(std::move(dense), std::move(meta)));
}

}  // namespace metal_marlin
