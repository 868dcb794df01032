#include "layouts/gguf.h"

#include <array>
#include <cinttypes>

#include "base/bits.h"
#include "formats/format_table.h"
#include "layouts/layout_table.h"
#include "layouts/nonstandard_scales.h"

namespace metal_marlin {
namespace {

constexpr uint64_t kLowNibbles = 0x0f0f0f0f0f0f0f0fu;

/// 16 bytes of codes: element j is the low nibble of byte j, element 16 + j the high one.
void split_16(const std::byte* from, uint8_t* to) {
  const auto a = load<uint64_t>(from), b = load<uint64_t>(from + 8);
  store(to, a & kLowNibbles);
  store(to + 8, b & kLowNibbles);
  store(to + 16, a >> 4 & kLowNibbles);
  store(to + 24, b >> 4 & kLowNibbles);
}

/// ggml's FP4 values are integers times a scale, so its code 8 is 0 and not -0: eight codes with 8
/// made 0. Bit 3 of a byte stays when the bits below are not all zero, for then adding 7 to them
/// reaches it.
uint64_t without_negative_zero(uint64_t codes) {
  constexpr uint64_t kMagnitudes = 0x0707070707070707u;
  return codes & (((codes & kMagnitudes) + kMagnitudes) | kMagnitudes);
}

void split_16_fp4(const std::byte* from, uint8_t* to) {
  const auto a = load<uint64_t>(from), b = load<uint64_t>(from + 8);
  store(to, without_negative_zero(a & kLowNibbles));
  store(to + 8, without_negative_zero(b & kLowNibbles));
  store(to + 16, without_negative_zero(a >> 4 & kLowNibbles));
  store(to + 24, without_negative_zero(b >> 4 & kLowNibbles));
}

// One struct a block type: its size, and how a block becomes canonical. `s` and `z` point at the
// block's first scale and zero.
struct BlockQ40 {
  static constexpr int64_t kElements = 32, kBytes = 18;
  static void read(const std::byte* block, uint8_t* codes, uint8_t* s, uint8_t*) {
    store(s, load<uint16_t>(block));
    split_16(block + 2, codes);
  }
};
struct BlockQ41 {
  static constexpr int64_t kElements = 32, kBytes = 20;
  static void read(const std::byte* block, uint8_t* codes, uint8_t* s, uint8_t* z) {
    store(s, load<uint16_t>(block));
    store(z, load<uint16_t>(block + 2));
    split_16(block + 4, codes);
  }
};
struct BlockQ80 {
  static constexpr int64_t kElements = 32, kBytes = 34;
  static void read(const std::byte* block, uint8_t* codes, uint8_t* s, uint8_t*) {
    store(s, load<uint16_t>(block));
    std::memcpy(codes, block + 2, 32);
  }
};
struct Mxfp4 {
  static constexpr int64_t kElements = 32, kBytes = 17;
  static void read(const std::byte* block, uint8_t* codes, uint8_t* s, uint8_t*) {
    *s = std::to_integer<uint8_t>(*block);
    split_16_fp4(block + 1, codes);
  }
};
/// Four groups of 16; element 16 g + j is the low nibble of byte 8 g + j, element 16 g + 8 + j the
/// high one.
struct Nvfp4Codes {
  static constexpr int64_t kElements = 64, kBytes = 36;
  static void read_codes(const std::byte* block, uint8_t* codes) {
    for (int g = 0; g < 4; ++g) {
      const auto x = load<uint64_t>(block + 4 + 8 * g);
      store(codes + 16 * g, without_negative_zero(x & kLowNibbles));
      store(codes + 16 * g + 8, without_negative_zero(x >> 4 & kLowNibbles));
    }
  }
};
struct Nvfp4 : Nvfp4Codes {
  static void read(const std::byte* block, uint8_t* codes, uint8_t* s, uint8_t*) {
    for (int g = 0; g < 4; ++g) {
      const auto b = std::to_integer<uint8_t>(block[g]);
      s[g] = b == 0x7f ? uint8_t{0} : static_cast<uint8_t>(b & 0x7f);
    }
    read_codes(block, codes);
  }
};
/// For matrices with a scale byte 0xFF, which means 480: no E4M3.
struct Nvfp4AsF16 : Nvfp4Codes {
  static void read(const std::byte* block, uint8_t* codes, uint8_t* s, uint8_t*) {
    for (int g = 0; g < 4; ++g) store(s + 2 * g, kGgufE4m3[std::to_integer<uint8_t>(block[g])]);
    read_codes(block, codes);
  }
};

template <class Block>
class GgufSource final : public WeightSource {
 public:
  GgufSource(WeightMeta meta, const TensorView& values) : values_(values) {
    meta_ = std::move(meta);
  }

  Status read(int64_t first, int64_t count, Stripe& out) const override {
    const int64_t blocks = meta_.k / Block::kElements;
    const int64_t groups = meta_.groups / blocks;  // a block
    const bool additive = meta_.zero_kind == ZeroKind::additive;
    const int64_t scale_step = groups * static_cast<int64_t>(scale_bytes(meta_.scale_type)),
                  zero_step = additive ? 2 : 0;
    out.codes.resize(static_cast<size_t>(count * meta_.k));
    out.scales.resize(static_cast<size_t>(count * blocks * scale_step));
    out.zeros.resize(static_cast<size_t>(count * blocks * zero_step));
    const std::byte* block = values_.data + first * blocks * Block::kBytes;
    uint8_t *codes = out.codes.data(), *scales = out.scales.data(), *zeros = out.zeros.data();
    for (int64_t i = 0; i < count * blocks; ++i) {
      Block::read(block, codes, scales, zeros);
      if constexpr (std::is_same_v<Block, Mxfp4>) {
        if (*scales == 0xff) return scale_error(block);
      }
      block += Block::kBytes;
      codes += Block::kElements;
      scales += scale_step;
      zeros += zero_step;
    }
    return {};
  }

 private:
  /// ggml's own validation rejects the byte; its kernels make 2^128 of it, which no float scale
  /// holds.
  Status scale_error(const std::byte* block) const {
    return view_error(values_, MARLIN_E_FORMAT,
                      "scale at byte %td of it: 0xFF is no scale of GGUF's MXFP4",
                      block - values_.data);
  }

  TensorView values_;
};

bool any_scale_is_480(const LayoutOperands& o) {
  const int64_t blocks = o.n * (o.k / Nvfp4::kElements);
  for (int64_t i = 0; i < blocks; ++i) {
    const auto four = load<uint32_t>(o.values.data + i * Nvfp4::kBytes);
    // A byte of ones in four: their complement has a zero byte.
    if (((~four - 0x01010101u) & four & 0x80808080u) != 0) return true;
  }
  return false;
}

constexpr GgufBlock kBlocks[] = {
    {kGgufQ4_0, MARLIN_INT4, false, BlockQ40::kElements, BlockQ40::kBytes, MARLIN_F16},
    {kGgufQ4_1, MARLIN_INT4, true, BlockQ41::kElements, BlockQ41::kBytes, MARLIN_F16},
    {kGgufQ8_0, MARLIN_INT8, false, BlockQ80::kElements, BlockQ80::kBytes, MARLIN_F16},
    {kGgufMxfp4, MARLIN_MXFP4, false, Mxfp4::kElements, Mxfp4::kBytes, MARLIN_E8M0},
    {kGgufNvfp4, MARLIN_NVFP4, false, Nvfp4::kElements, Nvfp4::kBytes, MARLIN_E4M3},
};

std::unique_ptr<WeightSource> make_block_source(WeightMeta meta, const LayoutOperands& o,
                                                bool additive) {
  switch (o.format) {
    case MARLIN_INT8:
      return std::make_unique<GgufSource<BlockQ80>>(std::move(meta), o.values);
    case MARLIN_MXFP4:
      return std::make_unique<GgufSource<Mxfp4>>(std::move(meta), o.values);
    case MARLIN_NVFP4:
      if (meta.scale_type == ScaleType::f16)
        return std::make_unique<GgufSource<Nvfp4AsF16>>(std::move(meta), o.values);
      return std::make_unique<GgufSource<Nvfp4>>(std::move(meta), o.values);
    default:
      if (additive) return std::make_unique<GgufSource<BlockQ41>>(std::move(meta), o.values);
      return std::make_unique<GgufSource<BlockQ40>>(std::move(meta), o.values);
  }
}

}  // namespace

const GgufBlock* gguf_block(std::string_view type) {
  for (const GgufBlock& block : kBlocks) {
    if (type == block.type) return &block;
  }
  return nullptr;
}

Result<std::unique_ptr<WeightSource>> read_gguf(const LayoutOperands& o, Depth depth) {
  const bool additive = (o.flags & MARLIN_PACK_ADDITIVE_ZEROS) != 0;
  const GgufBlock* row = nullptr;
  for (const GgufBlock& r : kBlocks) {
    if (r.format == o.format && r.additive == additive) row = &r;
  }
  if (row == nullptr) {
    return Status::error(MARLIN_E_UNSUPPORTED, "layout: no GGUF block type that is read holds %s%s",
                         format_name(o.format), additive ? " with additive zeros" : "");
  }
  LayoutOperands with_scales = o;
  with_scales.scales.dtype = row->scales;  // the blocks hold them
  MARLIN_ASSIGN(WeightMeta meta, begin_meta(with_scales, 0, depth));
  if (o.k % row->elements != 0) {
    return view_error(o.values, MARLIN_E_SHAPE,
                      "k: expected a multiple of %" PRId64 " (%s), found %" PRId64, row->elements,
                      row->type, o.k);
  }
  MARLIN_RETURN_IF_ERROR(expect_dtype(o.values, {MARLIN_U8}));
  MARLIN_RETURN_IF_ERROR(expect_shape(o.values, o.n, o.k / row->elements * row->bytes));
  const int64_t group = o.format == MARLIN_NVFP4 ? 16 : 32;
  if (meta.groups != o.k / group) {
    return Status::error(MARLIN_E_UNSUPPORTED,
                         "group_size: %s has groups of %" PRId64 ", found %" PRId64, row->type,
                         group, meta.group_size);
  }
  if (additive) {
    meta.zero_kind = ZeroKind::additive;
    meta.zero_type = ScaleType::f16;
  }
  if (o.format == MARLIN_NVFP4 && depth == Depth::full && any_scale_is_480(o))
    meta.scale_type = ScaleType::f16;
  MARLIN_RETURN_IF_ERROR(check_source_meta(meta, o, depth));
  return make_block_source(std::move(meta), o, additive);
}

}  // namespace metal_marlin
