// K8N, GPTQ v1 and v2: words of codes along K, [K * bits / 32, N], each column one stream; scales
// [groups, N]; GPTQ's zeros packed along N. K8N has 4 bits and may be 2:4 sparse: words of eight
// kept codes, and words of eight metadata nibbles, [ceil(K / 32), N].
#include <algorithm>
#include <cinttypes>
#include <string>

#include "base/bits.h"
#include "formats/format_table.h"
#include "layouts/columns.h"
#include "layouts/encoder.h"
#include "layouts/gptq_zeros.h"
#include "layouts/layout_table.h"
#include "layouts/nibbles.h"
#include "layouts/sparse_meta.h"

namespace metal_marlin {
namespace {

/// The form of the zeros: none, the form of K8N ([groups, N] bytes or floats), or GPTQ's packed
/// form.
enum class Zeros { none, plain, packed };

struct WordsOperands {
  WeightMeta meta;
  int bits = 4;  // of a code
  const std::byte *words = nullptr, *scales = nullptr, *zeros = nullptr;
  Zeros zeros_as = Zeros::none;
  GptqZeros packed_zeros;
  std::string warning;
  TensorView sparse_meta;  // when meta.sparse
};

class WordsSource final : public WeightSource {
 public:
  explicit WordsSource(WordsOperands parts) : parts_(std::move(parts)) {
    meta_ = parts_.meta;
    warning_ = parts_.warning;
  }

  Status read(int64_t first, int64_t count, Stripe& out) const override {
    if (meta_.sparse) {
      MARLIN_RETURN_IF_ERROR(read_kept(first, count, out));
    } else {
      read_codes(first, count, meta_.k, out.codes);
      out.kept.clear();
    }
    gather_columns(parts_.scales, meta_.n, scale_bytes(meta_.scale_type), meta_.groups, first,
                   count, out.scales);
    switch (parts_.zeros_as) {
      case Zeros::none:
        out.zeros.clear();
        break;
      case Zeros::plain:
        gather_columns(parts_.zeros, meta_.n,
                       meta_.zero_kind == ZeroKind::integer ? 1 : scale_bytes(meta_.zero_type),
                       meta_.groups, first, count, out.zeros);
        break;
      case Zeros::packed:
        parts_.packed_zeros.gather(first, count, out.zeros);
    }
    return {};
  }
  int64_t column_unit() const override { return 32; }
  void narrow(int64_t first, int64_t count) override {
    const int64_t row = meta_.n * 4;  // of words
    parts_.words += first * parts_.bits / 32 / (meta_.sparse ? 2 : 1) * row;
    if (meta_.sparse) parts_.sparse_meta.data += first / 32 * row;
    const int64_t group = narrow_columns(meta_, first, count);
    parts_.scales += group * meta_.n * static_cast<int64_t>(scale_bytes(meta_.scale_type));
    if (parts_.zeros_as == Zeros::packed) parts_.packed_zeros.narrow(group, meta_.groups);
    if (parts_.zeros_as == Zeros::plain)
      parts_.zeros += group * meta_.n *
                      (meta_.zero_kind == ZeroKind::integer
                           ? 1
                           : static_cast<int64_t>(scale_bytes(meta_.zero_type)));
  }

 private:
  /// Reads rows of `width` codes.
  void read_codes(int64_t first, int64_t count, int64_t width, std::vector<uint8_t>& out) const {
    out.resize(static_cast<size_t>(count * width));
    // Sixty-four codes of a column are one cache line of its row; neighboring columns share the
    // lines of the words.
    for (int64_t k = 0; k < width; k += 64) {
      const int64_t left = std::min<int64_t>(64, width - k);
      for (int64_t n = 0; n < count; ++n) {
        uint8_t* to = out.data() + n * width + k;
        if (parts_.bits == 4) {
          read_line(first + n, k, left, to);
        } else {
          read_stream(first + n, k, left, to);
        }
      }
    }
  }

  Status read_kept(int64_t first, int64_t count, Stripe& out) const {
    const int64_t blocks = meta_.k / 4;
    std::vector<uint8_t> codes;
    read_codes(first, count, meta_.k / 2, codes);
    out.codes.resize(static_cast<size_t>(count * meta_.k));
    out.kept.resize(static_cast<size_t>(count * blocks));
    for (int64_t r = 0; r < count; ++r) {
      uint8_t* kept = out.kept.data() + r * blocks;
      MARLIN_RETURN_IF_ERROR(read_word_meta(parts_.sparse_meta, first + r, meta_.k, kept));
      spread_kept(codes.data() + r * 2 * blocks, kept, blocks, out.codes.data() + r * meta_.k);
    }
    return {};
  }

  void read_line(int64_t n, int64_t k, int64_t left, uint8_t* to) const {
    const std::byte* from = parts_.words + (k / 8 * meta_.n + n) * 4;
    const int64_t stride = meta_.n * 4;
    for (int64_t i = 0; i + 8 <= left; i += 8, from += stride)
      store(to + i, spread_nibbles(load<uint32_t>(from)));
    if (const int64_t rest = left % 8; rest != 0) {
      const uint64_t codes = spread_nibbles(load<uint32_t>(from));
      std::memcpy(to + left - rest, &codes, static_cast<size_t>(rest));
    }
  }

  /// The same for codes of other widths: 32 of them take `bits` words of the column.
  void read_stream(int64_t n, int64_t k, int64_t left, uint8_t* to) const {
    std::byte stream[64];  // 64 codes of up to 8 bits
    const int64_t words = ceil_div(left * parts_.bits, 32);
    const std::byte* from = parts_.words + (k / 32 * parts_.bits * meta_.n + n) * 4;
    for (int64_t i = 0; i < words; ++i, from += meta_.n * 4)
      store(stream + 4 * i, load<uint32_t>(from));
    unpack_stream(stream, parts_.bits, left, to);
    if (meta_.format != MARLIN_FORMAT_INT8) return;
    for (int64_t i = 0; i < left; ++i) to[i] ^= 0x80u;  // from 0..255 to int8
  }

  WordsOperands parts_;
};

/// Checks everything except the zeros.
Result<WordsOperands> check_words(const LayoutOperands& o, Depth depth) {
  WordsOperands parts;
  parts.bits = format_row(o.format)->code_bits;
  MARLIN_ASSIGN(parts.meta, begin_meta(o, rows_of(o.scales), depth));
  MARLIN_RETURN_IF_ERROR(expect_dtype(o.values, {MARLIN_U32, MARLIN_I32}));
  MARLIN_RETURN_IF_ERROR(expect_shape(
      o.values, parts.meta.sparse ? 2 * ceil_div(o.k, 32) : ceil_div(o.k * parts.bits, 32), o.n));
  if (parts.meta.sparse) {
    MARLIN_RETURN_IF_ERROR(expect_dtype(o.sparse_meta, {MARLIN_U32, MARLIN_I32}));
    MARLIN_RETURN_IF_ERROR(expect_shape(o.sparse_meta, ceil_div(o.k, 32), o.n));
    parts.sparse_meta = o.sparse_meta;
  }
  MARLIN_RETURN_IF_ERROR(expect_shape(o.scales, parts.meta.groups, o.n));
  parts.words = o.values.data;
  parts.scales = o.scales.data;
  return parts;
}

Result<std::unique_ptr<WeightSource>> finish(WordsOperands parts, const LayoutOperands& o,
                                             Depth depth) {
  MARLIN_RETURN_IF_ERROR(check_source_meta(parts.meta, o, depth));
  if (parts.meta.sparse && depth == Depth::full) {
    MARLIN_RETURN_IF_ERROR(check_all_kept(parts.meta, [&](int64_t n, uint8_t* kept) {
      return read_word_meta(parts.sparse_meta, n, parts.meta.k, kept);
    }));
  }
  return std::unique_ptr<WeightSource>(std::make_unique<WordsSource>(std::move(parts)));
}

Status check_plain_zeros(const LayoutOperands& o, Depth depth, WordsOperands& parts) {
  WeightMeta& meta = parts.meta;
  const bool additive = (o.flags & MARLIN_PACK_ADDITIVE_ZEROS) != 0;
  if (!present(o.zeros)) {
    if (!additive) return {};
    return Status::error(MARLIN_E_ARGUMENT, "zeros: the flags promise additive zeros, found none");
  }
  MARLIN_RETURN_IF_ERROR(expect_shape(o.zeros, meta.groups, meta.n));
  parts.zeros = o.zeros.data;
  parts.zeros_as = Zeros::plain;
  if (additive) {
    meta.zero_kind = ZeroKind::additive;
    MARLIN_ASSIGN(meta.zero_type, float_type(o.zeros));
    return {};
  }
  MARLIN_RETURN_IF_ERROR(expect_dtype(o.zeros, {MARLIN_U8}));
  meta.zero_kind = ZeroKind::integer;
  if (depth == Depth::header) return {};
  const std::byte* end = parts.zeros + meta.groups * meta.n;
  const std::byte* bad =
      std::find_if(parts.zeros, end, [](std::byte z) { return std::to_integer<int>(z) > 15; });
  if (bad == end) return {};
  return view_error(
      o.zeros, MARLIN_E_FORMAT, "group %" PRId64 ", column %" PRId64 ": expected 0..15, found %d",
      (bad - parts.zeros) / meta.n, (bad - parts.zeros) % meta.n, std::to_integer<int>(*bad));
}

/// A zero of 256 has no place in the byte of a canonical zero.
Status refuse_256(const LayoutOperands& o, const GptqZeros& zeros) {
  const auto found = zeros.find_largest_code();
  if (!found) return {};
  return view_error(o.zeros, MARLIN_E_UNSUPPORTED,
                    "group %" PRId64 ", column %" PRId64
                    ": expected zeros of 8-bit codes up to 255, found 256",
                    found->group, found->n);
}

/// v1 stores zero - 1. Quantizers choose zeros from 0..2^bits - 1, so the largest code can only be
/// the -1 of a zero 0. The neighboring zeros in its word then depend on the writer. Files without
/// such a code mean the same to all readers, except for 3-bit files of old versions of GPTQModel.
Status choose_zeros(const LayoutOperands& o, Depth depth, WordsOperands& parts) {
  const auto zeros = [&](ZeroReading reading) {
    return GptqZeros(o.zeros.data, o.n, parts.meta.groups, parts.bits, reading);
  };
  if (o.layout == MARLIN_LAYOUT_GPTQ_V2) {
    parts.packed_zeros = zeros(ZeroReading::as_stored);
    return {};
  }
  switch (o.zero_f) {
    case MARLIN_GPTQ_ZERO_F_CARRY:
      parts.packed_zeros = zeros(ZeroReading::carry);
      return {};
    case MARLIN_GPTQ_ZERO_F_PLUS_ONE:
      parts.packed_zeros = zeros(ZeroReading::past_limit);
      if (parts.bits == 8 && depth == Depth::full) return refuse_256(o, parts.packed_zeros);
      return {};
    default:
      parts.packed_zeros = zeros(ZeroReading::wrap);
  }
  if (o.zero_f != MARLIN_GPTQ_ZERO_F_AUTO || depth == Depth::header) return {};
  if (parts.packed_zeros.are_swapped_fours()) {
    parts.packed_zeros = zeros(ZeroReading::carry);
    return {};
  }
  const auto found = parts.packed_zeros.find_largest_code();
  if (!found) return {};
  const int largest = (1 << parts.bits) - 1;
  const Status said =
      view_error(o.zeros, MARLIN_OK,
                 "group %" PRId64 ", column %" PRId64
                 " has a stored zero %d, which readers of GPTQ v1 take for 0 or %d; it was taken "
                 "for 0 (gptq_zero_f chooses)",
                 found->group, found->n, largest, largest + 1);
  parts.warning = said.message();
  return {};
}

Result<WordsOperands> check_gptq(const LayoutOperands& o, Depth depth) {
  MARLIN_ASSIGN(WordsOperands parts, check_words(o, depth));
  MARLIN_RETURN_IF_ERROR(expect_dtype(o.scales, {MARLIN_F16, MARLIN_BF16, MARLIN_F32}));
  if (!present(o.zeros)) return parts;
  MARLIN_RETURN_IF_ERROR(expect_dtype(o.zeros, {MARLIN_I32, MARLIN_U32}));
  MARLIN_RETURN_IF_ERROR(
      expect_shape(o.zeros, parts.meta.groups, GptqZeros::words_of_row(o.n, parts.bits)));
  parts.zeros_as = Zeros::packed;
  parts.meta.zero_kind = ZeroKind::integer;
  MARLIN_RETURN_IF_ERROR(choose_zeros(o, depth, parts));
  return parts;
}

/// Whether the zeros say nothing that the format does not. INT8 has no zeros, so its codes must be
/// symmetric.
Result<bool> drops_zeros(const LayoutOperands& o, Depth depth, const WordsOperands& parts) {
  const bool symmetric =
      o.format == MARLIN_FORMAT_INT8 || (o.symmetric && o.format != MARLIN_FORMAT_UINT8);
  if (!present(o.zeros) || !symmetric) return false;
  if (depth == Depth::header) return true;
  const int middle = 1 << parts.bits >> 1;
  const auto other = parts.packed_zeros.find_other_than(middle);
  if (!other || o.format != MARLIN_FORMAT_INT8) return !other;
  return view_error(o.zeros, MARLIN_E_UNSUPPORTED,
                    "group %" PRId64 ", column %" PRId64
                    ": expected the zero %d of symmetric 8-bit codes, found %d",
                    other->group, other->n, middle, parts.packed_zeros.at(other->group, other->n));
}

/// Reads v1 and v2.
Result<std::unique_ptr<WeightSource>> read_gptq(const LayoutOperands& operands, Depth depth) {
  MARLIN_ASSIGN(WordsOperands parts, check_gptq(operands, depth));
  MARLIN_ASSIGN(const bool drops, drops_zeros(operands, depth, parts));
  if (drops) {
    parts.zeros_as = Zeros::none;
    parts.meta.zero_kind = ZeroKind::none;
  }
  return finish(std::move(parts), operands, depth);
}

}  // namespace

Result<std::unique_ptr<WeightSource>> read_k8n(const LayoutOperands& operands, Depth depth) {
  MARLIN_ASSIGN(WordsOperands parts, check_words(operands, depth));
  MARLIN_RETURN_IF_ERROR(check_plain_zeros(operands, depth, parts));
  return finish(std::move(parts), operands, depth);
}

Result<std::unique_ptr<WeightSource>> read_gptq_v1(const LayoutOperands& operands, Depth depth) {
  return read_gptq(operands, depth);
}

Result<std::unique_ptr<WeightSource>> read_gptq_v2(const LayoutOperands& operands, Depth depth) {
  return read_gptq(operands, depth);
}

namespace {

/// Words and scales run across the rows of W, so the encoder holds the packed bytes of one layer
/// until it has all rows.
class GptqEncoder final : public Encoder {
 public:
  explicit GptqEncoder(const WeightMeta& meta)
      : meta_(meta),
        words_(static_cast<size_t>(meta.k / 8 * meta.n)),
        zeros_(static_cast<size_t>(meta.groups * (meta.n / 8))),
        scales_(static_cast<size_t>(meta.groups * meta.n)) {}

  Status encode(const Stripe& stripe, int64_t first, int64_t count, const TensorWriter&) override {
    for (int64_t r = 0; r < count; ++r) {
      const uint8_t* codes = stripe.codes.data() + r * meta_.k;
      uint32_t* word = words_.data() + first + r;
      for (int64_t k = 0; k < meta_.k; k += 8, word += meta_.n) {
        uint32_t packed = 0;
        for (int i = 0; i < 8; ++i) packed |= uint32_t{codes[k + i]} << 4 * i;
        *word = packed;
      }
      for (int64_t g = 0; g < meta_.groups; ++g) {
        const int64_t at = r * meta_.groups + g, n = first + r;
        const uint32_t zero =
            meta_.zero_kind == ZeroKind::integer ? stripe.zeros[static_cast<size_t>(at)] : 8;
        zeros_[static_cast<size_t>(g * (meta_.n / 8) + n / 8)] |= zero << (n % 8 * 4);
        scales_[static_cast<size_t>(g * meta_.n + n)] =
            load<uint16_t>(stripe.scales.data() + 2 * at);
      }
    }
    return {};
  }

  Status finish(const TensorWriter& out) override {
    std::vector<int32_t> group_of(static_cast<size_t>(meta_.k));
    for (size_t k = 0; k < group_of.size(); ++k) {
      group_of[k] =
          meta_.groups == 1 ? 0 : static_cast<int32_t>(static_cast<int64_t>(k) / meta_.group_size);
    }
    MARLIN_RETURN_IF_ERROR(out(0, 0, std::as_bytes(std::span(words_))));
    MARLIN_RETURN_IF_ERROR(out(1, 0, std::as_bytes(std::span(zeros_))));
    MARLIN_RETURN_IF_ERROR(out(2, 0, std::as_bytes(std::span(scales_))));
    return out(3, 0, std::as_bytes(std::span(group_of)));
  }

 private:
  WeightMeta meta_;
  std::vector<uint32_t> words_, zeros_;  // [K / 8][N], [groups][N / 8]
  std::vector<uint16_t> scales_;         // [groups][N]
};

Status check_gptq_encoding(const WeightMeta& meta) {
  if (meta.format == MARLIN_FORMAT_INT4) return {};
  return Status::error(MARLIN_E_UNSUPPORTED, "GPTQ: no layout for %s; it holds int4",
                       format_name(meta.format));
}

Result<std::vector<EncodedTensor>> gptq_tensors(const WeightMeta& meta, uint32_t experts) {
  if (experts > 1) {
    return Status::error(MARLIN_E_UNSUPPORTED, "experts: GPTQ has no stacks of experts, found %u",
                         experts);
  }
  if (meta.n % 8 != 0 || meta.k % 8 != 0) {
    return Status::error(MARLIN_E_SHAPE,
                         "n, k: GPTQ wants multiples of 8, found %" PRId64 ", %" PRId64, meta.n,
                         meta.k);
  }
  MARLIN_RETURN_IF_ERROR(expect_whole_groups(meta, "GPTQ"));
  MARLIN_RETURN_IF_ERROR(expect_f16_scales(meta, "GPTQ"));
  return std::vector<EncodedTensor>{{TensorRole::values, "I32", {meta.k / 8, meta.n}},
                                    {TensorRole::zeros, "I32", {meta.groups, meta.n / 8}},
                                    {TensorRole::scales, "F16", {meta.groups, meta.n}},
                                    {TensorRole::group_index, "I32", {meta.k}}};
}

}  // namespace

LayoutEncoder gptq_v2_encoder() {
  return {check_gptq_encoding, gptq_tensors,
          [](const WeightMeta& meta) -> std::unique_ptr<Encoder> {
            return std::make_unique<GptqEncoder>(meta);
          }};
}

}  // namespace metal_marlin
