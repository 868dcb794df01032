// bitsandbytes with 4 bits: the matrix, flattened row by row, in bytes of two codes each, the first
// in the high nibble. Each block of the flattened matrix has a float32 scale, so blocks run across
// rows if K is no multiple of the block. A group of a row is the largest part that lies in one
// block in every row. Packed groups have 16 elements at least, so that shorter ones become the
// entries of a group index, and their packed codes take more bytes than the file's.
//
// Scales may be nested: bytes that stand for real numbers. bitsandbytes rounds these numbers to
// float32, in two steps; the canonical weights keep their parts (formats/weights.h).
#include <algorithm>
#include <cinttypes>
#include <numeric>

#include "base/bits.h"
#include "formats/codecs.h"
#include "formats/format_table.h"
#include "formats/packed_budget.h"
#include "layouts/layout_table.h"

namespace metal_marlin {
namespace {

constexpr int64_t kLeastGroup = 16;  // of packed weights

class BitsandbytesSource final : public WeightSource {
 public:
  BitsandbytesSource(const LayoutOperands& o, WeightMeta meta, int64_t group)
      : codes_(o.values.data),
        scales_(o.scales.data),
        block_(o.flat_block),
        group_(group),
        file_k_(o.k),
        absmax_(o.nested.absmax.data),
        span_(o.nested.span),
        offset_(o.nested.offset) {
    meta_ = std::move(meta);
  }

  Status read(int64_t first, int64_t count, Stripe& out) const override {
    out.codes.resize(static_cast<size_t>(count * meta_.k));
    for (int64_t r = 0; r < count; ++r)
      for (int64_t k = 0; k < meta_.k; ++k) {
        const int64_t at = (first + r) * file_k_ + first_k_ + k;
        const auto byte = std::to_integer<uint32_t>(codes_[at / 2]);
        out.codes[static_cast<size_t>(r * meta_.k + k)] =
            static_cast<uint8_t>(at % 2 == 0 ? byte >> 4 : byte & 15u);
      }
    read_scales(first, count, out);
    out.zeros.clear();
    out.kept.clear();
    return {};
  }
  int64_t column_unit() const override { return 1; }
  void narrow(int64_t first, int64_t count) override {
    first_k_ += first;
    narrow_columns(meta_, first, count);
  }

 private:
  void read_scales(int64_t first, int64_t count, Stripe& out) const {
    const bool nested = meta_.has_nested_scales();
    const auto scales = static_cast<size_t>(count * meta_.groups);
    out.scales.resize(scales * scale_bytes(meta_.scale_type));
    out.scale_factors.resize(nested ? scales * sizeof(float) : 0);
    out.scale_offsets.resize(nested ? static_cast<size_t>(count) * sizeof(float) : 0);
    const int64_t begin = meta_.group_index.empty() ? first_k_ : 0;  // an index keeps its numbers
    size_t i = 0;
    for (int64_t r = first; r < first + count; ++r)
      for (int64_t g = 0; g < meta_.groups; ++g, ++i) {
        const int64_t block = (r * file_k_ + begin + g * group_) / block_;
        if (!nested) {
          store(out.scales.data() + i * sizeof(float), load<float>(scales_ + 4 * block));
          continue;
        }
        out.scales[i] = std::to_integer<uint8_t>(scales_[block]);
        store(out.scale_factors.data() + i * sizeof(float),
              load<float>(absmax_ + 4 * (block / span_)));
      }
    for (size_t at = 0; at < out.scale_offsets.size(); at += sizeof(float))
      store(out.scale_offsets.data() + at, offset_);
  }

  const std::byte *codes_, *scales_;
  int64_t block_, group_;
  int64_t file_k_, first_k_ = 0;  // of a row in the file
  const std::byte* absmax_;       // of nested scales: a float32 for every `span_` blocks
  int64_t span_;
  float offset_;
};

/// Adds what nested scales need. A run of groups with one factor is the largest part of a row that
/// lies between two borders of factors in every row.
void set_nested(const LayoutOperands& o, int64_t group, Depth depth, WeightMeta& meta) {
  meta.scale_type = ScaleType::nested;
  const int64_t span = o.nested.span * o.flat_block;  // elements of a factor; both are below 2^31
  meta.factor_groups =
      meta.group_index.empty() ? std::max<int64_t>(1, std::gcd(span, o.k) / group) : 1;
  meta.scale_map.resize(kScaleMapEntries);
  if (depth == Depth::full)
    decode_floats(MARLIN_F32, o.nested.map.data, kScaleMapEntries, meta.scale_map.data());
}

/// Turns groups of fewer than 16 elements into a group index.
void index_groups(int64_t group, WeightMeta& meta) {
  meta.groups = ceil_div(meta.k, group);
  meta.group_index.resize(static_cast<size_t>(meta.k));
  for (size_t k = 0; k < meta.group_index.size(); ++k)
    meta.group_index[k] = static_cast<int32_t>(static_cast<int64_t>(k) / group);
}

/// Each group of an index is packed as 16 elements or more, and each of these has an entry in the
/// order of columns. An index that is out of proportion is not made.
Status check_index(int64_t group, const WeightMeta& meta) {
  PackedBudget budget;
  budget.add_own(own_bytes(meta));
  const Checked packed_k = Checked(ceil_div(meta.k, group)) * Checked(kLeastGroup);
  const Checked bytes = packed_k * (Checked(ceil_div(meta.n, 2)) + Checked(sizeof(int32_t)));
  return budget.take(bytes.get().value_or(UINT64_MAX));
}

Status check_nested(const NestedScales& nested, int64_t scales) {
  MARLIN_RETURN_IF_ERROR(expect_dtype(nested.map, {MARLIN_F32}));
  MARLIN_RETURN_IF_ERROR(expect_shape(nested.map, 1, 256));
  MARLIN_RETURN_IF_ERROR(expect_dtype(nested.absmax, {MARLIN_F32}));
  return expect_shape(nested.absmax, 1, ceil_div(scales, nested.span));
}

}  // namespace

Result<std::unique_ptr<WeightSource>> read_bitsandbytes(const LayoutOperands& o, Depth depth) {
  const bool nested = present(o.nested.map);
  MARLIN_RETURN_IF_ERROR(expect_dtype(o.scales, {nested ? MARLIN_U8 : MARLIN_F32}));
  LayoutOperands plain = o;
  plain.scales.dtype = MARLIN_F32;
  const bool indexed = o.group_size < kLeastGroup && o.group_size < o.k;
  if (indexed) plain.group_size = kLeastGroup;
  MARLIN_ASSIGN(WeightMeta meta, begin_meta(plain, 0, depth));
  const int64_t elements = o.n * o.k;  // both are below 2^31
  const int64_t blocks = ceil_div(elements, o.flat_block);
  MARLIN_RETURN_IF_ERROR(expect_shape(o.scales, 1, blocks));
  if (nested) MARLIN_RETURN_IF_ERROR(check_nested(o.nested, blocks));
  // The type of the bytes is a choice of the writer.
  if (o.values.bytes != static_cast<uint64_t>(ceil_div(elements, 2))) {
    return view_error(o.values, MARLIN_E_SHAPE,
                      "expected %" PRId64 " bytes for [%" PRId64 ", %" PRId64 "], found %" PRIu64,
                      ceil_div(elements, 2), o.n, o.k, o.values.bytes);
  }
  if (indexed) meta.group_size = kLeastGroup;
  if (indexed && depth == Depth::full) {
    MARLIN_RETURN_IF_ERROR(check_index(o.group_size, meta));
    index_groups(o.group_size, meta);
  }
  const int64_t group = indexed ? o.group_size : meta.group_size;
  if (nested) set_nested(o, group, depth, meta);
  MARLIN_RETURN_IF_ERROR(check_source_meta(meta, o, depth));
  return std::unique_ptr<WeightSource>(
      std::make_unique<BitsandbytesSource>(o, std::move(meta), group));
}

}  // namespace metal_marlin
