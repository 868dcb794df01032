// compressed-tensors "pack-quantized": words of codes along K, [N, ceil(K * bits / 32)]; zeros
// packed in the same way along N. Old versions padded words of 3, 5 and 6 bits. The FP4 formats of
// the same writer are read as the layout ROWS, and the encoder here writes them. marlin-24 is in
// marlin.cc.
#include "base/bits.h"
#include "formats/format_table.h"
#include "layouts/encoder.h"
#include "layouts/layout_table.h"
#include "layouts/rows.h"

namespace metal_marlin {
namespace {

bool has_minus_one(const TensorView& index) {
  for (int64_t k = 0; k < cols_of(index); ++k) {
    if (load<int32_t>(index.data + 4 * k) == -1) return true;
  }
  return false;
}

/// Words of `codes` codes that are packed along a row or a column.
int64_t word_count(int64_t codes, int bits, CodeForm form) {
  return form == CodeForm::padded_words ? ceil_div(codes, 32 / bits) : ceil_div(codes * bits, 32);
}

Status take_zeros(const LayoutOperands& o, int bits, RowsOperands& parts) {
  if (!present(o.zeros)) return {};
  MARLIN_RETURN_IF_ERROR(expect_dtype(o.zeros, {MARLIN_I32, MARLIN_U32}));
  MARLIN_RETURN_IF_ERROR(
      expect_shape(o.zeros, word_count(o.n, bits, parts.code_form), parts.meta.groups));
  parts.meta.zero_kind = ZeroKind::integer;
  parts.zeros = o.zeros.data;
  parts.zero_stride = parts.meta.groups * 4;
  parts.zero_form = ZeroForm::words_along_n;
  return {};
}

Result<std::unique_ptr<WeightSource>> read_packed(const LayoutOperands& operands, Depth depth,
                                                  CodeForm form) {
  LayoutOperands o = operands;
  if (present(o.group_index)) {
    MARLIN_RETURN_IF_ERROR(expect_dtype(o.group_index, {MARLIN_I32}));
    MARLIN_RETURN_IF_ERROR(expect_shape(o.group_index, 1, o.k));
    if (depth == Depth::full && has_minus_one(o.group_index))
      o.group_index = {};  // the writer's "none"
  }
  RowsOperands parts;
  MARLIN_ASSIGN(parts.meta, begin_meta(o, cols_of(o.scales), depth));
  const int bits = format_row(o.format)->code_bits;
  MARLIN_RETURN_IF_ERROR(expect_dtype(o.values, {MARLIN_I32, MARLIN_U32}));
  MARLIN_RETURN_IF_ERROR(expect_shape(o.values, o.n, word_count(o.k, bits, form)));
  MARLIN_RETURN_IF_ERROR(expect_dtype(o.scales, {MARLIN_F16, MARLIN_BF16, MARLIN_F32}));
  MARLIN_RETURN_IF_ERROR(expect_shape(o.scales, o.n, parts.meta.groups));
  parts.codes = o.values.data;
  parts.code_stride = cols_of(o.values) * 4;
  parts.code_form = form;
  parts.flips_sign = o.format == MARLIN_FORMAT_INT8;
  parts.scales = o.scales.data;
  parts.scale_stride = parts.meta.groups * static_cast<int64_t>(scale_bytes(parts.meta.scale_type));
  MARLIN_RETURN_IF_ERROR(take_zeros(o, bits, parts));
  MARLIN_RETURN_IF_ERROR(check_source_meta(parts.meta, o, depth));
  return make_rows_source(std::move(parts));
}

}  // namespace

Result<std::unique_ptr<WeightSource>> read_compressed_tensors(const LayoutOperands& operands,
                                                              Depth depth) {
  return read_packed(operands, depth, CodeForm::stream);
}

Result<std::unique_ptr<WeightSource>> read_compressed_tensors_padded(const LayoutOperands& operands,
                                                                     Depth depth) {
  return read_packed(operands, depth, CodeForm::padded_words);
}

namespace {

/// Numbers of the tensors.
enum TensorIndex : size_t { kCodes = 0, kScales = 1, kThird = 2, kFourth = 3 };

const char* scale_type_text(ScaleType type) {
  switch (type) {
    case ScaleType::e8m0:
      return "U8";
    case ScaleType::e4m3:
      return "F8_E4M3";
    default:
      return scale_type_name(type);
  }
}

class CompressedTensorsEncoder final : public Encoder {
 public:
  explicit CompressedTensorsEncoder(const WeightMeta& meta)
      : meta_(meta), int4_(meta.format == MARLIN_FORMAT_INT4) {}

  Status encode(const Stripe& stripe, int64_t first, int64_t count,
                const TensorWriter& out) override {
    // The bytes of a word of eight codes hold two codes each, in order. A row ends with a whole
    // word.
    const int64_t row_bytes = int4_ ? ceil_div(meta_.k, 8) * 4 : meta_.k / 2;
    std::vector<std::byte> rows;
    rows.reserve(static_cast<size_t>(count * row_bytes));
    for (int64_t r = 0; r < count; ++r) {
      append_nibbles(stripe.codes.data() + r * meta_.k, meta_.k, rows);
      rows.resize(static_cast<size_t>((r + 1) * row_bytes));
    }
    MARLIN_RETURN_IF_ERROR(out(kCodes, static_cast<uint64_t>(first * row_bytes), rows));
    const auto scale_row = static_cast<int64_t>(scale_bytes(meta_.scale_type)) * meta_.groups;
    MARLIN_RETURN_IF_ERROR(
        out(kScales, static_cast<uint64_t>(first * scale_row), bytes_of(stripe.scales)));
    return meta_.zero_kind == ZeroKind::integer ? encode_zeros(stripe, first, count, out)
                                                : Status();
  }

  Status finish(const TensorWriter& out) override {
    if (meta_.format == MARLIN_FORMAT_NVFP4) {
      const float scale = meta_.tensor_scales[0].value;
      return out(kThird, 0, std::as_bytes(std::span(&scale, 1)));
    }
    if (!int4_) return {};
    const int64_t shape[2] = {meta_.n, meta_.k};
    return out(meta_.zero_kind == ZeroKind::integer ? kFourth : kThird, 0,
               std::as_bytes(std::span(shape)));
  }

 private:
  /// Words of eight along N: nibble n % 8 of word [n / 8][group].
  Status encode_zeros(const Stripe& stripe, int64_t first, int64_t count,
                      const TensorWriter& out) const {
    const int64_t words = ceil_div(count, 8);
    std::vector<uint32_t> packed(static_cast<size_t>(words * meta_.groups));
    for (int64_t r = 0; r < count; ++r) {
      for (int64_t g = 0; g < meta_.groups; ++g) {
        packed[static_cast<size_t>(r / 8 * meta_.groups + g)] |=
            uint32_t{stripe.zeros[static_cast<size_t>(r * meta_.groups + g)]} << (r % 8 * 4);
      }
    }
    return out(kThird, static_cast<uint64_t>(first / 8 * meta_.groups * 4),
               std::as_bytes(std::span(packed)));
  }

  WeightMeta meta_;
  bool int4_;
};

Status check_compressed_tensors_encoding(const WeightMeta& meta) {
  if (meta.format != MARLIN_FORMAT_INT4 && meta.format != MARLIN_FORMAT_MXFP4 &&
      meta.format != MARLIN_FORMAT_NVFP4) {
    return Status::error(MARLIN_E_UNSUPPORTED,
                         "compressed-tensors: no layout for %s; int4, mxfp4 and nvfp4 have one",
                         format_name(meta.format));
  }
  return {};
}

Result<std::vector<EncodedTensor>> compressed_tensors_parts(const WeightMeta& meta,
                                                            uint32_t /*experts*/) {
  MARLIN_RETURN_IF_ERROR(expect_whole_groups(meta, "compressed-tensors"));
  std::vector<EncodedTensor> all;
  if (meta.format == MARLIN_FORMAT_INT4) {
    all.push_back({TensorRole::values, "I32", {meta.n, ceil_div(meta.k, 8)}});
  } else {
    all.push_back({TensorRole::values, "U8", {meta.n, meta.k / 2}});
  }
  all.push_back({TensorRole::scales, scale_type_text(meta.scale_type), {meta.n, meta.groups}});
  if (meta.zero_kind == ZeroKind::integer)
    all.push_back({TensorRole::zeros, "I32", {ceil_div(meta.n, 8), meta.groups}});
  if (meta.format == MARLIN_FORMAT_NVFP4) all.push_back({TensorRole::tensor_scale, "F32", {1}});
  if (meta.format == MARLIN_FORMAT_INT4) all.push_back({TensorRole::shape, "I64", {2}});
  return all;
}

}  // namespace

LayoutEncoder compressed_tensors_encoder() {
  return {check_compressed_tensors_encoding, compressed_tensors_parts,
          [](const WeightMeta& meta) -> std::unique_ptr<Encoder> {
            return std::make_unique<CompressedTensorsEncoder>(meta);
          }};
}

}  // namespace metal_marlin
