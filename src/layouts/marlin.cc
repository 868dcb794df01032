// IST Marlin (`B`, `s`), its 2:4 form (`B`, `s`, `meta`) and compressed-tensors' marlin-24
// (`weight_packed`, `scale_packed`, `meta`). Codes are in tiles of 16 x 64, whose words hold the
// operand of one thread of an m16n8k16 instruction. Scales have the order of its accumulators.
#include <bit>
#include <cinttypes>

#include "base/bits.h"
#include "formats/format_table.h"
#include "layouts/encoder.h"
#include "layouts/layout_table.h"
#include "layouts/sparse_meta.h"

namespace metal_marlin {
namespace {

/// The place of a column in a tile of 16 along K and 64 along N. Its four words are `word` + 0, 4,
/// 8, 12 of 128. In word j, the codes of k = 2 j, 2 j + 8, 2 j + 1, 2 j + 9 are nibbles `nibble` +
/// 0, 1, 4, 5.
struct TilePlace {
  int word, nibble;
};
/// Word 4 t + w of thread t holds columns 16 w + t / 4 and 16 w + t / 4 + 8.
constexpr TilePlace dense_place(int column) {
  return {16 * (column % 8) + column / 16, column / 8 % 2 * 2};
}
/// Word 4 t + j holds columns 8 (t / 4) + j and 8 (t / 4) + j + 4.
constexpr TilePlace sparse_place(int column) {
  return {16 * (column / 8) + column % 4, column / 4 % 2 * 2};
}

/// 2:4 with groups: stored j is {0, 4, 1, 5, 2, 6, 3, 7}[j].
constexpr int64_t interleaved_8(int64_t n) { return n / 8 * 8 + n % 4 * 2 + n % 8 / 4; }

/// The writer of marlin-24 compares the group size with half of K, because it keeps two of four.
/// Two groups per column therefore stay in order.
constexpr bool marlin_24_permutes_scales(int64_t groups) { return groups > 2; }

/// The place of the 16 bits of metadata for blocks 4 c .. 4 c + 3 of column n, in units of 16 bits.
/// They have the order in which the sparse instruction reads them (CUTLASS's interleaved columns):
/// rows are shuffled in 64s, and then 2 x 2 pieces are transposed.
constexpr int64_t sparse_meta_place(int64_t n, int64_t c, int64_t columns) {
  int64_t row = n / 64 * 64 + n % 2 * 2 + n % 8 / 4 + n % 4 / 2 * 32 + n % 64 / 8 * 4, column = c;
  if (row % 2 != column % 2) {
    const int64_t swap = row % 2 == 0 ? 1 : -1;
    row += swap;
    column -= swap;
  }
  return column / 2 * 2 * columns + 2 * row + column % 2;
}

/// The place of scale n in a row of scales.
using ScalePlace = int64_t (*)(int64_t n);
/// Marlin with groups transposes 8 x 8 scales.
int64_t transposed_64(int64_t n) { return n / 64 * 64 + n % 8 * 8 + n % 64 / 8; }
/// Marlin with one group a column: stored 8 i + j is 2 i + {0, 1, 8, 9, 16, 17, 24, 25}[j].
int64_t pairs_of_32(int64_t n) { return n / 32 * 32 + n % 8 / 2 * 8 + n % 32 / 8 * 2 + n % 2; }
int64_t in_order(int64_t n) { return n; }

struct MarlinOperands {
  WeightMeta meta;
  const std::byte *words = nullptr, *scales = nullptr;
  ScalePlace scale_place = in_order;
  TensorView sparse_meta;  // when meta.sparse
};

class MarlinSource final : public WeightSource {
 public:
  explicit MarlinSource(MarlinOperands parts) : parts_(std::move(parts)) { meta_ = parts_.meta; }

  Status read(int64_t first, int64_t count, Stripe& out) const override {
    out.codes.resize(static_cast<size_t>(count * meta_.k));
    if (meta_.sparse) {
      MARLIN_RETURN_IF_ERROR(read_kept(first, count, out));
    } else {
      for (int64_t r = 0; r < count; ++r) {
        const int64_t n = first + r;
        read_column(n, dense_place(static_cast<int>(n % 64)), meta_.k,
                    out.codes.data() + r * meta_.k);
      }
      out.kept.clear();
    }
    read_scales(first, count, out.scales);
    out.zeros.clear();
    return {};
  }
  int64_t column_unit() const override { return 32; }
  void narrow(int64_t first, int64_t count) override {
    const int64_t tile_row = meta_.n / 64 * 128 * 4;
    parts_.words += first / 16 / (meta_.sparse ? 2 : 1) * tile_row;
    if (meta_.sparse) parts_.sparse_meta.data += first / 16 * meta_.n * 2;
    const int64_t group = narrow_columns(meta_, first, count);
    parts_.scales += group * meta_.n * static_cast<int64_t>(scale_bytes(meta_.scale_type));
  }

  /// Masks of the k / 4 blocks of column n.
  static Status read_meta(const TensorView& view, const WeightMeta& meta, int64_t n,
                          uint8_t* kept) {
    for (int64_t c = 0; c < meta.k / 16; ++c) {
      const auto unit = load<uint16_t>(view.data + sparse_meta_place(n, c, meta.n) * 2);
      for (int64_t i = 0; i < 4; ++i) {
        const unsigned nibble = unit >> 4 * i & 15u;
        kept[4 * c + i] = kKeptOfNibble[nibble];
        if (kept[4 * c + i] == 0) return nibble_error(view, n, 4 * c + i, nibble);
      }
    }
    return {};
  }

 private:
  /// Reads `depth` codes (of kept elements, if sparse) of column n.
  void read_column(int64_t n, TilePlace place, int64_t depth, uint8_t* to) const {
    const std::byte* tile = parts_.words + (n / 64 * 128 + place.word) * 4;
    const int64_t next_tile = meta_.n / 64 * 128 * 4;
    for (int64_t k = 0; k < depth; k += 16, tile += next_tile) {
      for (int64_t j = 0; j < 4; ++j) {
        const uint32_t word = load<uint32_t>(tile + 16 * j) >> 4 * place.nibble;
        to[k + 2 * j] = word & 15u;
        to[k + 2 * j + 8] = word >> 4 & 15u;
        to[k + 2 * j + 1] = word >> 16 & 15u;
        to[k + 2 * j + 9] = word >> 20 & 15u;
      }
    }
  }

  Status read_kept(int64_t first, int64_t count, Stripe& out) const {
    const int64_t blocks = meta_.k / 4;
    out.kept.resize(static_cast<size_t>(count * blocks));
    std::vector<uint8_t> codes(static_cast<size_t>(2 * blocks));
    for (int64_t r = 0; r < count; ++r) {
      const int64_t n = first + r;
      uint8_t* kept = out.kept.data() + r * blocks;
      MARLIN_RETURN_IF_ERROR(read_meta(parts_.sparse_meta, meta_, n, kept));
      read_column(n, sparse_place(static_cast<int>(n % 64)), 2 * blocks, codes.data());
      spread_kept(codes.data(), kept, blocks, out.codes.data() + r * meta_.k);
    }
    return {};
  }

  void read_scales(int64_t first, int64_t count, std::vector<uint8_t>& out) const {
    const auto size = static_cast<int64_t>(scale_bytes(meta_.scale_type));
    out.resize(static_cast<size_t>(count * meta_.groups * size));
    uint8_t* to = out.data();
    for (int64_t n = first; n < first + count; ++n) {
      const int64_t place = parts_.scale_place(n);
      for (int64_t g = 0; g < meta_.groups; ++g, to += size) {
        std::memcpy(to, parts_.scales + (g * meta_.n + place) * size, static_cast<size_t>(size));
      }
    }
  }

  MarlinOperands parts_;
};

Status expect_multiple(const TensorView& view, const char* what, int64_t unit, int64_t found) {
  if (found % unit == 0) return {};
  return view_error(view, MARLIN_E_SHAPE,
                    "%s: expected a multiple of %" PRId64 " (a tile), found %" PRId64, what, unit,
                    found);
}

/// Checks all except the metadata and the order of the scales. `tile_k` is the number of elements
/// of K in a row of words.
Result<MarlinOperands> check_tiles(const LayoutOperands& o, Depth depth, int64_t tile_k) {
  MarlinOperands parts;
  MARLIN_ASSIGN(parts.meta, begin_meta(o, rows_of(o.scales), depth));
  MARLIN_RETURN_IF_ERROR(expect_multiple(o.values, "n", 64, o.n));
  MARLIN_RETURN_IF_ERROR(expect_multiple(o.values, "k", tile_k, o.k));
  if (o.k % parts.meta.group_size != 0) {
    return view_error(o.scales, MARLIN_E_SHAPE,
                      "group_size: expected a divisor of k = %" PRId64 ", found %" PRId64, o.k,
                      parts.meta.group_size);
  }
  MARLIN_RETURN_IF_ERROR(expect_dtype(o.values, {MARLIN_I32, MARLIN_U32}));
  MARLIN_RETURN_IF_ERROR(expect_shape(o.values, o.k / tile_k, 2 * o.n));
  MARLIN_RETURN_IF_ERROR(expect_dtype(o.scales, {MARLIN_F16, MARLIN_BF16, MARLIN_F32}));
  MARLIN_RETURN_IF_ERROR(expect_shape(o.scales, parts.meta.groups, o.n));
  parts.words = o.values.data;
  parts.scales = o.scales.data;
  return parts;
}

/// The two writers give the same n * k / 16 metadata of 16 bits different shapes, and IST permutes
/// scales whenever there are groups.
enum class Writer { ist, compressed_tensors };

Result<std::unique_ptr<WeightSource>> read_sparse(const LayoutOperands& o, Depth depth,
                                                  Writer writer) {
  MARLIN_RETURN_IF_ERROR(expect_dtype(o.sparse_meta, {MARLIN_I16}));
  MARLIN_ASSIGN(MarlinOperands parts, check_tiles(o, depth, 32));
  const bool ist = writer == Writer::ist;
  MARLIN_RETURN_IF_ERROR(
      expect_shape(o.sparse_meta, ist ? o.n : o.k / 32, ist ? o.k / 16 : 2 * o.n));
  parts.sparse_meta = o.sparse_meta;
  const bool permuted = ist ? parts.meta.groups > 1 : marlin_24_permutes_scales(parts.meta.groups);
  if (permuted) parts.scale_place = interleaved_8;
  MARLIN_RETURN_IF_ERROR(check_source_meta(parts.meta, o, depth));
  if (depth == Depth::full) {
    MARLIN_RETURN_IF_ERROR(check_all_kept(parts.meta, [&](int64_t n, uint8_t* kept) {
      return MarlinSource::read_meta(parts.sparse_meta, parts.meta, n, kept);
    }));
  }
  return std::unique_ptr<WeightSource>(std::make_unique<MarlinSource>(std::move(parts)));
}

}  // namespace

Result<std::unique_ptr<WeightSource>> read_marlin(const LayoutOperands& o, Depth depth) {
  MARLIN_ASSIGN(MarlinOperands parts, check_tiles(o, depth, 16));
  parts.scale_place = parts.meta.groups > 1 ? transposed_64 : pairs_of_32;
  MARLIN_RETURN_IF_ERROR(check_source_meta(parts.meta, o, depth));
  return std::unique_ptr<WeightSource>(std::make_unique<MarlinSource>(std::move(parts)));
}

Result<std::unique_ptr<WeightSource>> read_marlin_24(const LayoutOperands& o, Depth depth) {
  return read_sparse(o, depth, Writer::compressed_tensors);
}

Result<std::unique_ptr<WeightSource>> read_sparse_marlin(const LayoutOperands& o, Depth depth) {
  return read_sparse(o, depth, Writer::ist);
}

namespace {

/// Holds the packed bytes of one layer until it has all rows.
class Marlin24Encoder final : public Encoder {
 public:
  explicit Marlin24Encoder(const WeightMeta& meta)
      : meta_(meta),
        words_(static_cast<size_t>(meta.k / 32 * 2 * meta.n)),
        scales_(static_cast<size_t>(meta.groups * meta.n)),
        pattern_(static_cast<size_t>(meta.k / 16 * meta.n)) {}

  Status encode(const Stripe& stripe, int64_t first, int64_t count, const TensorWriter&) override {
    std::vector<uint8_t> codes(static_cast<size_t>(meta_.k / 2));
    for (int64_t r = 0; r < count; ++r) {
      const int64_t n = first + r;
      const uint8_t* kept = stripe.kept.data() + r * (meta_.k / 4);
      put_pattern(n, kept);
      size_t next = 0;
      for (int64_t k = 0; k < meta_.k; ++k) {
        if (is_kept(kept, k)) codes[next++] = stripe.codes[static_cast<size_t>(r * meta_.k + k)];
      }
      put_codes(n, codes);
      const int64_t place = marlin_24_permutes_scales(meta_.groups) ? interleaved_8(n) : n;
      for (int64_t g = 0; g < meta_.groups; ++g) {
        scales_[static_cast<size_t>(g * meta_.n + place)] =
            load<uint16_t>(stripe.scales.data() + 2 * (r * meta_.groups + g));
      }
    }
    return {};
  }

  Status finish(const TensorWriter& out) override {
    MARLIN_RETURN_IF_ERROR(out(0, 0, std::as_bytes(std::span(words_))));
    MARLIN_RETURN_IF_ERROR(out(1, 0, std::as_bytes(std::span(scales_))));
    return out(2, 0, std::as_bytes(std::span(pattern_)));
  }

 private:
  /// Word j of a tile has the kept codes 2 j, 2 j + 8, 2 j + 1, 2 j + 9 of one column, eight bits
  /// of each half. Columns 4 apart share words. Stripes are whole tiles wide, so that no two
  /// threads write the same word.
  void put_codes(int64_t n, const std::vector<uint8_t>& codes) {
    const TilePlace place = sparse_place(static_cast<int>(n % 64));
    auto tile = static_cast<size_t>(n / 64 * 128 + place.word);
    for (size_t k = 0; k < codes.size(); k += 16, tile += static_cast<size_t>(2 * meta_.n)) {
      for (size_t j = 0; j < 4; ++j) {
        const uint32_t four = uint32_t{codes[k + 2 * j]} | uint32_t{codes[k + 2 * j + 8]} << 4 |
                              uint32_t{codes[k + 2 * j + 1]} << 16 |
                              uint32_t{codes[k + 2 * j + 9]} << 20;
        words_[tile + 4 * j] |= four << 4 * place.nibble;
      }
    }
  }

  void put_pattern(int64_t n, const uint8_t* kept) {
    for (int64_t c = 0; c < meta_.k / 16; ++c) {
      unsigned unit = 0;
      for (int i = 0; i < 4; ++i) {
        const unsigned mask = kept[4 * c + i];
        const int low = std::countr_zero(mask), high = 31 - std::countl_zero(mask);
        unit |= static_cast<unsigned>(high << 2 | low) << 4 * i;
      }
      pattern_[static_cast<size_t>(sparse_meta_place(n, c, meta_.n))] = static_cast<uint16_t>(unit);
    }
  }

  WeightMeta meta_;
  std::vector<uint32_t> words_;    // [K / 32][2 N]
  std::vector<uint16_t> scales_;   // [groups][N]
  std::vector<uint16_t> pattern_;  // [K / 32][2 N]
};

Status check_marlin_encoding(const WeightMeta& meta) {
  if (meta.format == MARLIN_FORMAT_INT4 && meta.sparse && meta.zero_kind == ZeroKind::none)
    return {};
  return Status::error(MARLIN_E_UNSUPPORTED,
                       "marlin-24: holds symmetric int4 that is pruned to 2:4 or obeys it; "
                       "compressed-tensors holds %s%s%s",
                       meta.sparse ? "" : "dense ",
                       meta.zero_kind == ZeroKind::none ? "" : "asymmetric ",
                       meta.format == MARLIN_FORMAT_INT4 ? "int4" : format_name(meta.format));
}

Result<std::vector<EncodedTensor>> marlin_tensors(const WeightMeta& meta, uint32_t experts) {
  if (experts > 1) {
    return Status::error(MARLIN_E_UNSUPPORTED,
                         "experts: marlin-24 has no stacks of experts, found %u", experts);
  }
  if (meta.n % 64 != 0 || meta.k % 32 != 0) {
    return Status::error(MARLIN_E_SHAPE,
                         "n, k: marlin-24 wants multiples of 64 and 32, found %" PRId64 ", %" PRId64
                         "; compressed-tensors holds it with zeros",
                         meta.n, meta.k);
  }
  if (meta.groups > 1 && meta.group_size != 128) {
    return Status::error(MARLIN_E_UNSUPPORTED,
                         "group_size: marlin-24 has groups of 128 or one a row, found %" PRId64,
                         meta.group_size);
  }
  MARLIN_RETURN_IF_ERROR(expect_whole_groups(meta, "marlin-24"));
  MARLIN_RETURN_IF_ERROR(expect_f16_scales(meta, "marlin-24"));
  return std::vector<EncodedTensor>{{TensorRole::values, "I32", {meta.k / 32, 2 * meta.n}},
                                    {TensorRole::scales, "F16", {meta.groups, meta.n}},
                                    {TensorRole::sparse_meta, "I16", {meta.k / 32, 2 * meta.n}}};
}

}  // namespace

LayoutEncoder marlin_24_encoder() {
  return {check_marlin_encoding, marlin_tensors,
          [](const WeightMeta& meta) -> std::unique_ptr<Encoder> {
            return std::make_unique<Marlin24Encoder>(meta);
          }};
}

}  // namespace metal_marlin
