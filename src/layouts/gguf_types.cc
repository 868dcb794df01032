#include "layouts/gguf_types.h"

#include <algorithm>

#include "base/bits.h"
#include "formats/format_table.h"
#include "layouts/gguf_blocks.h"
#include "layouts/gguf_k_blocks.h"
#include "layouts/gguf_ternary_blocks.h"

namespace metal_marlin {
namespace {

template <class Block>
class GgufSource final : public WeightSource {
 public:
  GgufSource(WeightMeta meta, const TensorView& values)
      : values_(values), row_bytes_(meta.k / Block::kElements * Block::kBytes) {
    meta_ = std::move(meta);
  }

  Status read(int64_t first, int64_t count, Stripe& out) const override {
    const int64_t blocks = count * (meta_.k / Block::kElements);
    const int64_t groups = Block::kElements / std::min(Block::kGroup, Block::kElements);
    const auto resize = [&](std::vector<uint8_t>& part, bool present, size_t step) {
      part.resize(present ? static_cast<size_t>(blocks) * step : 0);
      return part.data();
    };
    const bool zeros = meta_.zero_kind != ZeroKind::none;
    const size_t zero_bytes =
        meta_.zero_kind == ZeroKind::integer ? 1 : scale_bytes(meta_.zero_type);
    const size_t scale_step = static_cast<size_t>(groups) * scale_bytes(meta_.scale_type),
                 zero_step = static_cast<size_t>(groups) * zero_bytes;
    gguf::BlockParts to{};
    to.codes = resize(out.codes, true, Block::kElements);
    to.scales = resize(out.scales, true, scale_step);
    to.zeros = resize(out.zeros, zeros, zero_step);
    to.scale_factor = resize(out.scale_factors, meta_.has_two_level_scales(), kFactorBytes);
    to.zero_factor = resize(out.zero_factors, meta_.has_two_level_zeros(), kFactorBytes);
    const int64_t blocks_a_row = meta_.k / Block::kElements;
    const std::byte* row = values_.data + first_block_ * Block::kBytes + first * row_bytes_;
    const std::byte* block = row;
    for (int64_t i = 0, of_row = 0; i < blocks; ++i, ++of_row, block += Block::kBytes) {
      if (of_row == blocks_a_row) {
        of_row = 0;
        block = row += row_bytes_;
      }
      Block::read(block, to);
      if constexpr (requires { Block::kNoScale; }) {
        if (*to.scales == Block::kNoScale) return scale_error(block);
      }
      to.codes += Block::kElements;
      to.scales += scale_step;
      if (zeros) to.zeros += zero_step;
      if (meta_.has_two_level_scales()) to.scale_factor += kFactorBytes;
      if (meta_.has_two_level_zeros()) to.zero_factor += kFactorBytes;
    }
    return {};
  }
  int64_t column_unit() const override { return Block::kElements; }
  void narrow(int64_t first, int64_t count) override {
    first_block_ += first / Block::kElements;
    narrow_columns(meta_, first, count);
  }

 private:
  Status scale_error(const std::byte* block) const
    requires requires { Block::kNoScale; }
  {
    return view_error(values_, MARLIN_E_FORMAT,
                      "scale at byte %td of it: 0x%02X is no scale of GGUF's %s",
                      block - values_.data, unsigned{Block::kNoScale}, Block::kName);
  }

  TensorView values_;
  int64_t row_bytes_, first_block_ = 0;  // of a row in the file
};

template <class Block>
Result<std::unique_ptr<WeightSource>> read_blocks(WeightMeta meta, const LayoutOperands& o,
                                                  Depth depth) {
  if constexpr (requires { typename Block::WithF16Scales; }) {
    const int64_t count = o.n * (o.k / Block::kElements);
    if (depth == Depth::full && Block::needs_f16_scales(o.values.data, count)) {
      using Other = typename Block::WithF16Scales;
      meta.scale_type = ScaleType::f16;
      MARLIN_RETURN_IF_ERROR(check_source_meta(meta, o, depth));
      return std::unique_ptr<WeightSource>(
          std::make_unique<GgufSource<Other>>(std::move(meta), o.values));
    }
  }
  MARLIN_RETURN_IF_ERROR(check_source_meta(meta, o, depth));
  return std::unique_ptr<WeightSource>(
      std::make_unique<GgufSource<Block>>(std::move(meta), o.values));
}

template <class Block>
void write_blocks(const WeightMeta& meta, const Stripe& stripe, int64_t count, std::byte* blocks) {
  constexpr int64_t kGroups = Block::kElements / std::min(Block::kGroup, Block::kElements);
  const int64_t scale_step = kGroups * static_cast<int64_t>(scale_bytes(meta.scale_type)),
                zero_step = kGroups * static_cast<int64_t>(scale_bytes(meta.zero_type));
  const auto at = [](const std::vector<uint8_t>& part, int64_t place) {
    return part.empty() ? nullptr : part.data() + place;
  };
  for (int64_t b = 0; b < count; ++b) {
    constexpr auto kFactor = static_cast<int64_t>(kFactorBytes);
    Block::write({at(stripe.codes, b * Block::kElements), at(stripe.scales, b * scale_step),
                  at(stripe.zeros, b * zero_step), at(stripe.scale_factors, b * kFactor),
                  at(stripe.zero_factors, b * kFactor)},
                 blocks + b * Block::kBytes);
  }
}

template <class Block>
constexpr GgufBlock block_row() {
  constexpr bool kIntegerZeros = requires { Block::kIntegerZero; };
  GgufBlock row{Block::kFormat,
                Block::kScales,
                std::nullopt,
                kIntegerZeros,
                Block::kGroup,
                read_blocks<Block>,
                nullptr,
                0,
                0};
  if constexpr (requires { &Block::write; }) {
    static_assert(Block::kFileType != 0);
    row.write = write_blocks<Block>;
    row.file_type = row.mixed_file_type = Block::kFileType;
  }
  if constexpr (requires { Block::kZeros; }) row.zeros = Block::kZeros;
  if constexpr (requires { Block::kMixedFileType; }) row.mixed_file_type = Block::kMixedFileType;
  return row;
}

template <class Block>
constexpr GgufBlock kBlock = block_row<Block>();

template <class Block>
constexpr GgufType blocks() {
  return {{Block::kName, static_cast<uint16_t>(Block::kElements),
           static_cast<uint16_t>(Block::kBytes), 0},
          &kBlock<Block>};
}

constexpr GgufType kUnused = {{nullptr, 1, 1, 0}};

// clang-format off
constexpr GgufType kTypes[] = {
    {{"F32", 1, 4, MARLIN_F32}},
    {{"F16", 1, 2, MARLIN_F16}},
    blocks<gguf::Q4_0>(),
    blocks<gguf::Q4_1>(),
    kUnused,
    kUnused,
    blocks<gguf::Q5_0>(),
    blocks<gguf::Q5_1>(),
    blocks<gguf::Q8_0>(),
    {{"Q8_1", 32, 36, 0}},
    blocks<gguf::Q2_K>(),
    blocks<gguf::Q3_K>(),
    blocks<gguf::Q4_K>(),
    blocks<gguf::Q5_K>(),
    blocks<gguf::Q6_K>(),
    {{"Q8_K", 256, 292, 0}},
    {{"IQ2_XXS", 256, 66, 0}},
    {{"IQ2_XS", 256, 74, 0}},
    {{"IQ3_XXS", 256, 98, 0}},
    {{"IQ1_S", 256, 50, 0}},
    blocks<gguf::Iq4Nl>(),
    {{"IQ3_S", 256, 110, 0}},
    {{"IQ2_S", 256, 82, 0}},
    blocks<gguf::Iq4Xs>(),
    {{"I8", 1, 1, MARLIN_I8}},
    {{"I16", 1, 2, MARLIN_I16}},
    {{"I32", 1, 4, MARLIN_I32}},
    {{"I64", 1, 8, MARLIN_I64}},
    {{"F64", 1, 8, 0}},
    {{"IQ1_M", 256, 56, 0}},
    {{"BF16", 1, 2, MARLIN_BF16}},
    kUnused,
    kUnused,
    kUnused,
    blocks<gguf::Tq1_0>(),
    blocks<gguf::Tq2_0>(),
    kUnused,
    kUnused,
    kUnused,
    blocks<gguf::Mxfp4>(),
    blocks<gguf::Nvfp4>(),
    blocks<gguf::Q1_0>(),
    blocks<gguf::Q2_0>(),
};
// clang-format on

}  // namespace

std::span<const GgufType> gguf_types() { return kTypes; }

const GgufType* gguf_type(std::string_view name) {
  for (const GgufType& type : kTypes) {
    if (type.element.name != nullptr && name == type.element.name) return &type;
  }
  return nullptr;
}

WeightMeta gguf_meta(const GgufType& type, int64_t n, int64_t k) {
  const GgufBlock& block = *type.block;
  WeightMeta meta;
  meta.format = block.format;
  meta.n = n;
  meta.k = k;
  meta.group_size = block.group;
  meta.groups = ceil_div(k, block.group);
  meta.scale_type = block.scales;
  if (block.integer_zeros) meta.zero_kind = ZeroKind::integer;
  if (block.zeros) {
    meta.zero_kind = ZeroKind::additive;
    meta.zero_type = *block.zeros;
  }
  return meta;
}

std::string gguf_block_names() {
  std::string names;
  for (const GgufType& type : kTypes) {
    if (type.block == nullptr || !type.block->is_written()) continue;
    if (!names.empty()) names += ", ";
    names += type.element.name;
  }
  return names;
}

int32_t gguf_number(const GgufType& type) { return static_cast<int32_t>(&type - kTypes); }

}  // namespace metal_marlin
