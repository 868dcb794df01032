// compressed-tensors: mxfp4-pack-quantized, nvfp4-pack-quantized and, for INT4, pack-quantized.
#include <cinttypes>

#include "base/bits.h"
#include "checkpoints/convert/encoder.h"
#include "formats/format_table.h"

namespace metal_marlin {
namespace {

enum PartIndex : size_t { kCodes = 0, kScales = 1, kThird = 2, kFourth = 3 };

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
      : meta_(meta), int4_(meta.format == MARLIN_INT4) {}

  Status encode(const Stripe& stripe, int64_t first, int64_t count,
                const PartWriter& out) override {
    // Words of eight codes are bytes of two in order; a row ends with a whole word.
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

  Status finish(const PartWriter& out) override {
    if (meta_.format == MARLIN_NVFP4) {
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
                      const PartWriter& out) const {
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

Status check(const WeightMeta& meta) {
  if (meta.format != MARLIN_INT4 && meta.format != MARLIN_MXFP4 && meta.format != MARLIN_NVFP4) {
    return Status::error(MARLIN_E_UNSUPPORTED,
                         "compressed-tensors: no layout for %s; int4, mxfp4 and nvfp4 have one",
                         format_name(meta.format));
  }
  return {};
}

Result<std::vector<Part>> parts(const EncoderTarget& target) {
  const WeightMeta& meta = target.meta;
  const std::string prefix = target.base + ".weight_";
  MARLIN_RETURN_IF_ERROR(expect_whole_groups(meta, "compressed-tensors"));
  if (meta.format == MARLIN_INT4 && target.experts > 1) {
    return Status::error(MARLIN_E_UNSUPPORTED,
                         "experts: pack-quantized has no stacks of experts, found %u",
                         target.experts);
  }
  std::vector<Part> all;
  if (meta.format == MARLIN_INT4) {
    all.push_back({prefix + "packed", "I32", {meta.n, ceil_div(meta.k, 8)}});
  } else {
    all.push_back({prefix + "packed", "U8", {meta.n, meta.k / 2}});
  }
  all.push_back({prefix + "scale", scale_type_text(meta.scale_type), {meta.n, meta.groups}});
  if (meta.zero_kind == ZeroKind::integer)
    all.push_back({prefix + "zero_point", "I32", {ceil_div(meta.n, 8), meta.groups}});
  if (meta.format == MARLIN_NVFP4) all.push_back({prefix + "global_scale", "F32", {1}});
  if (meta.format == MARLIN_INT4) all.push_back({prefix + "shape", "I64", {2}});
  return all;
}

void describe(const WeightMeta& meta, std::span<const std::string> ignore, JsonWriter& config) {
  const bool int4 = meta.format == MARLIN_INT4, channel = int4 && meta.groups == 1;
  const char* format = int4                          ? "pack-quantized"
                       : meta.format == MARLIN_MXFP4 ? "mxfp4-pack-quantized"
                                                     : "nvfp4-pack-quantized";
  config.key("quant_method").string("compressed-tensors");
  config.key("format").string(format);
  config.key("quantization_status").string("compressed");
  config.key("config_groups").begin('{').key("group_0").begin('{');
  config.key("targets").begin('[').string("Linear").end(']');
  config.key("weights").begin('{');
  config.key("num_bits").number("4");
  config.key("type").string(int4 ? "int" : "float");
  config.key("symmetric").boolean(meta.zero_kind == ZeroKind::none);
  config.key("strategy")
      .string(channel                       ? "channel"
              : meta.format == MARLIN_NVFP4 ? "tensor_group"
                                            : "group");
  if (!channel) config.key("group_size").number(std::to_string(meta.group_size));
  config.key("dynamic").boolean(false);
  config.end('}');
  config.key("input_activations").null();
  config.key("output_activations").null();
  config.key("format").string(format);
  config.end('}').end('}');
  config.key("ignore").begin('[');
  for (const std::string& name : ignore) config.string(name);
  config.end(']');
}

}  // namespace

const Scheme kCompressedTensors = {
    .number = MARLIN_SCHEME_COMPRESSED_TENSORS,
    .name = "compressed-tensors",
    .gguf = false,
    .divides = true,
    .sparse = false,
    .default_group = 0,
    .check = check,
    .parts = parts,
    .encoder = [](const WeightMeta& meta) -> std::unique_ptr<Encoder> {
      return std::make_unique<CompressedTensorsEncoder>(meta);
    },
    .describe = describe,
    .own_config = nullptr};

}  // namespace metal_marlin
