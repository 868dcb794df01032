// GGUF blocks: a row of W is a row of blocks, which hold codes and scales together. gguf_blocks.h
// describes the types of blocks.
#include <algorithm>
#include <cinttypes>
#include <string>

#include "base/bits.h"
#include "formats/format_table.h"
#include "layouts/encoder.h"
#include "layouts/gguf_types.h"
#include "layouts/layout_table.h"

namespace metal_marlin {
namespace {

/// The type that a file names, else the type that a caller means, which holds all codes of the
/// format. Null if no type of blocks that the library reads holds these operands.
const GgufType* type_of(const LayoutOperands& o, bool additive, bool two_level) {
  const GgufType* named = gguf_type(o.values.type_name);
  if (named != nullptr && named->block != nullptr) return named;
  for (const GgufType& type : gguf_types()) {
    if (type.block != nullptr && type.block->is_written() && type.block->format == o.format &&
        type.block->zeros.has_value() == additive && type.block->two_level() == two_level)
      return &type;
  }
  return nullptr;
}

/// The types of blocks that hold any codes of this format, each with the flags that ask for it.
std::string types_of(marlin_format format) {
  std::string types;
  for (const GgufType& type : gguf_types()) {
    if (type.block == nullptr || !type.block->is_written() || type.block->format != format)
      continue;
    types += types.empty() ? "" : ", ";
    types += type.element.name;
    if (type.block->zeros) types += " (additive zeros)";
    if (type.block->two_level()) types += " (two-level scales)";
  }
  return types;
}

/// The type of the blocks that these weights are; null if there is none.
const GgufType* written_type(const WeightMeta& meta) {
  for (const GgufType& type : gguf_types()) {
    if (type.block != nullptr && type.block->holds(meta)) return &type;
  }
  return nullptr;
}

class GgufEncoder final : public Encoder {
 public:
  explicit GgufEncoder(const WeightMeta& meta)
      : meta_(meta), element_(written_type(meta)->element), block_(*written_type(meta)->block) {}

  Status encode(const Stripe& stripe, int64_t first, int64_t count,
                const TensorWriter& out) override {
    const int64_t blocks = meta_.k / element_.block;
    std::vector<std::byte> bytes(static_cast<size_t>(count * blocks * element_.bytes));
    block_.write(meta_, stripe, count * blocks, bytes.data());
    return out(0, static_cast<uint64_t>(first * blocks * element_.bytes), bytes);
  }

  Status finish(const TensorWriter& out) override {
    if (meta_.format != MARLIN_FORMAT_NVFP4) return {};
    const float scale = meta_.tensor_scales[0].value;
    return out(1, 0, std::as_bytes(std::span(&scale, 1)));
  }

 private:
  WeightMeta meta_;
  const ElementType& element_;
  const GgufBlock& block_;
};

Status check_gguf_encoding(const WeightMeta& meta) {
  if (meta.zero_kind == ZeroKind::integer) {
    return Status::error(MARLIN_E_UNSUPPORTED,
                         "GGUF: no block type with integer zero points; compressed-tensors and "
                         "GPTQ hold asymmetric int4");
  }
  if (written_type(meta) != nullptr) return {};
  const std::string types = types_of(meta.format);
  return Status::error(MARLIN_E_UNSUPPORTED,
                       "GGUF: no block type for these scales of %s; it has %s",
                       format_name(meta.format), types.empty() ? "none" : types.c_str());
}

Result<std::vector<EncodedTensor>> gguf_tensors(const WeightMeta& meta, uint32_t experts) {
  const GgufType& type = *written_type(meta);
  const ElementType& element = type.element;
  const GgufBlock& block = *type.block;
  if (meta.k % element.block != 0) {
    return Status::error(MARLIN_E_SHAPE, "k: GGUF's %s wants multiples of %u, found %" PRId64,
                         element.name, element.block, meta.k);
  }
  if (meta.group_size != block.group && (meta.groups != 1 || meta.k != block.group)) {
    return Status::error(MARLIN_E_UNSUPPORTED,
                         "group_size: GGUF's %s has groups of %" PRId64 ", found %" PRId64,
                         element.name, block.group, meta.group_size);
  }
  if (block.scales == ScaleType::f16) MARLIN_RETURN_IF_ERROR(expect_f16_scales(meta, "GGUF"));
  std::vector<EncodedTensor> all;
  all.push_back({TensorRole::values, element.name, {meta.n, meta.k}});
  if (meta.format != MARLIN_FORMAT_NVFP4) return all;
  // One number per matrix: a vector over the experts if there are several.
  EncodedTensor scale{TensorRole::tensor_scale, "F32", {}};
  if (experts == 1) scale.dims.push_back(1);
  all.push_back(std::move(scale));
  return all;
}

std::vector<WeightMeta> kinds(int64_t n, int64_t k) {
  std::vector<const GgufType*> types;
  for (const GgufType& type : gguf_types()) {
    if (type.block != nullptr && type.block->is_written() && k % type.element.block == 0)
      types.push_back(&type);
  }
  const auto bits = [](const GgufType* type) {
    return static_cast<double>(type->element.bytes) / type->element.block;
  };
  std::stable_sort(types.begin(), types.end(),
                   [&](const GgufType* a, const GgufType* b) { return bits(a) < bits(b); });
  std::vector<WeightMeta> all;
  all.reserve(types.size());
  for (const GgufType* type : types) all.push_back(gguf_meta(*type, n, k));
  return all;
}

}  // namespace

Result<std::unique_ptr<WeightSource>> read_gguf(const LayoutOperands& o, Depth depth) {
  const bool additive = (o.flags & MARLIN_PACK_ADDITIVE_ZEROS) != 0;
  const bool two_level = (o.flags & MARLIN_PACK_TWO_LEVEL_SCALES) != 0;
  const GgufType* type = type_of(o, additive, two_level);
  if (type == nullptr) {
    const std::string types = types_of(o.format);
    return Status::error(
        MARLIN_E_UNSUPPORTED, "layout: no GGUF block type that is read holds %s%s%s; it has %s",
        format_name(o.format), additive ? " with additive zeros" : "",
        two_level ? " with two-level scales" : "", types.empty() ? "none" : types.c_str());
  }
  const ElementType& element = type->element;
  const GgufBlock& block = *type->block;
  LayoutOperands with_scales = o;
  with_scales.scales.dtype = scale_dtype(block.scales);  // the blocks hold them
  if (o.group_size == 0) with_scales.group_size = block.group;
  MARLIN_ASSIGN(WeightMeta meta, begin_meta(with_scales, 0, depth));
  meta.scale_type = block.scales;
  if (o.k % element.block != 0) {
    return view_error(o.values, MARLIN_E_SHAPE, "k: expected a multiple of %u (%s), found %" PRId64,
                      element.block, element.name, o.k);
  }
  MARLIN_RETURN_IF_ERROR(expect_dtype(o.values, {MARLIN_U8}));
  MARLIN_RETURN_IF_ERROR(expect_shape(o.values, o.n, o.k / element.block * element.bytes));
  if (meta.groups != o.k / block.group) {
    return Status::error(MARLIN_E_UNSUPPORTED,
                         "group_size: %s has groups of %" PRId64 ", found %" PRId64, element.name,
                         block.group, meta.group_size);
  }
  if (block.integer_zeros) meta.zero_kind = ZeroKind::integer;
  if (block.zeros.has_value()) {
    meta.zero_kind = ZeroKind::additive;
    meta.zero_type = *block.zeros;
  }
  return block.read(std::move(meta), o, depth);
}

LayoutEncoder gguf_encoder() {
  return {check_gguf_encoding, gguf_tensors,
          [](const WeightMeta& meta) -> std::unique_ptr<Encoder> {
            return std::make_unique<GgufEncoder>(meta);
          },
          kinds};
}

}  // namespace metal_marlin
