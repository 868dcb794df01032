// IST Marlin (`B`, `s`), its 2:4 form (`B`, `s`, `meta`) and compressed-tensors' marlin-24
// (`weight_packed`, `scale_packed`, `meta`): codes in tiles of 16 x 64 whose words hold what one
// thread of an m16n8k16 instruction wants, and scales in the order of its accumulators.
#include <cinttypes>

#include "base/bits.h"
#include "layouts/layout_table.h"
#include "layouts/marlin_tiles.h"
#include "layouts/sparse_meta.h"

namespace metal_marlin {
namespace {

/// Where scale n of a row of scales is stored.
using ScalePlace = int64_t (*)(int64_t n);
/// Marlin with groups: an 8 x 8 transposition.
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
  /// `depth` codes (of kept elements, when sparse) of column n.
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

/// All but the metadata and the order of the scales. `tile_k`: elements of K in a row of words.
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

/// The two writers shape the same n * k / 16 metadata of 16 bits differently, and IST permutes
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

}  // namespace metal_marlin
