// GGUF's blocks: Q4_0, MXFP4, NVFP4. ggml's FP4 values are integers times a scale, so a code 8 (-0)
// would read as +0: it is written as 0.
#include <cinttypes>

#include "base/bits.h"
#include "checkpoints/convert/encoder.h"
#include "checkpoints/gguf_file.h"
#include "formats/format_table.h"
#include "layouts/gguf.h"

namespace metal_marlin {
namespace {

struct BlockType {
  marlin_format format;
  const char* type;
  int64_t elements, bytes, group;
};
constexpr BlockType kBlocks[] = {{MARLIN_INT4, kGgufQ4_0, 32, 18, 32},
                                 {MARLIN_MXFP4, kGgufMxfp4, 32, 17, 32},
                                 {MARLIN_NVFP4, kGgufNvfp4, 64, 36, 16}};
const BlockType* block_of(marlin_format format) {
  for (const BlockType& block : kBlocks) {
    if (block.format == format) return &block;
  }
  return nullptr;
}

/// `half` bytes: byte j has code j in its low and code half + j in its high nibble.
void put_halves(const uint8_t* codes, int64_t half, bool fp4, std::byte* to) {
  const auto code = [&](int64_t i) { return fp4 && codes[i] == 8 ? 0u : unsigned{codes[i]}; };
  for (int64_t j = 0; j < half; ++j) to[j] = static_cast<std::byte>(code(j) | code(half + j) << 4);
}

class GgufEncoder final : public Encoder {
 public:
  explicit GgufEncoder(const WeightMeta& meta) : meta_(meta), block_(*block_of(meta.format)) {}

  Status encode(const Stripe& stripe, int64_t first, int64_t count,
                const PartWriter& out) override {
    const int64_t blocks = meta_.k / block_.elements;
    std::vector<std::byte> bytes(static_cast<size_t>(count * blocks * block_.bytes));
    for (int64_t b = 0; b < count * blocks; ++b) {
      put_block(stripe.codes.data() + b * block_.elements, stripe.scales.data(), b,
                bytes.data() + b * block_.bytes);
    }
    return out(0, static_cast<uint64_t>(first * blocks * block_.bytes), bytes);
  }

  Status finish(const PartWriter& out) override {
    if (meta_.format != MARLIN_NVFP4) return {};
    const float scale = meta_.tensor_scales[0].value;
    return out(1, 0, std::as_bytes(std::span(&scale, 1)));
  }

 private:
  void put_block(const uint8_t* codes, const uint8_t* scales, int64_t b, std::byte* to) const {
    switch (meta_.format) {
      case MARLIN_INT4:
        std::memcpy(to, scales + 2 * b, 2);
        return put_halves(codes, 16, false, to + 2);
      case MARLIN_MXFP4:
        std::memcpy(to, scales + b, 1);
        return put_halves(codes, 16, true, to + 1);
      default:
        std::memcpy(to, scales + 4 * b, 4);
        for (int g = 0; g < 4; ++g) put_halves(codes + 16 * g, 8, true, to + 4 + 8 * g);
    }
  }

  WeightMeta meta_;
  const BlockType& block_;
};

Status check(const WeightMeta& meta) {
  if (block_of(meta.format) == nullptr) {
    return Status::error(MARLIN_E_UNSUPPORTED,
                         "GGUF: no block type for %s; int4, mxfp4 and nvfp4 have one",
                         format_name(meta.format));
  }
  if (meta.zero_kind == ZeroKind::none) return {};
  return Status::error(MARLIN_E_UNSUPPORTED,
                       "GGUF: no block type with integer zero points; compressed-tensors and GPTQ "
                       "hold asymmetric int4");
}

Result<std::vector<Part>> parts(const EncoderTarget& target) {
  const WeightMeta& meta = target.meta;
  const BlockType& block = *block_of(meta.format);
  if (meta.k % block.elements != 0) {
    return Status::error(MARLIN_E_SHAPE,
                         "k: GGUF's %s wants multiples of %" PRId64 ", found %" PRId64, block.type,
                         block.elements, meta.k);
  }
  if (meta.group_size != block.group && !(meta.groups == 1 && meta.k == block.group)) {
    return Status::error(MARLIN_E_UNSUPPORTED,
                         "group_size: GGUF's %s has groups of %" PRId64 ", found %" PRId64,
                         block.type, block.group, meta.group_size);
  }
  if (meta.format == MARLIN_INT4) MARLIN_RETURN_IF_ERROR(expect_f16_scales(meta, "GGUF"));
  std::vector<Part> all;
  all.push_back({target.tensor, block.type, {meta.n, meta.k}});
  if (meta.format != MARLIN_NVFP4) return all;
  if (!target.tensor.ends_with(".weight")) {
    return Status::error(
        MARLIN_E_UNSUPPORTED,
        "GGUF: the tensor scale of an NVFP4 tensor is found by its name in .weight");
  }
  // One number a matrix: a vector over the experts when there are several.
  Part scale{target.base + ".scale", "F32", {}};
  if (target.experts == 1) scale.dims.push_back(1);
  all.push_back(std::move(scale));
  return all;
}

}  // namespace

const Scheme kGguf = {.number = MARLIN_SCHEME_GGUF,
                      .name = "GGUF",
                      .gguf = true,
                      .divides = false,
                      .sparse = false,
                      .default_group = 0,
                      .check = check,
                      .parts = parts,
                      .encoder = [](const WeightMeta& meta) -> std::unique_ptr<Encoder> {
                        return std::make_unique<GgufEncoder>(meta);
                      },
                      .describe = nullptr,
                      .own_config = nullptr};

}  // namespace metal_marlin
