// GPTQ v2: words of eight codes along K, zero points in words of eight along N. Words and scales
// run across the rows of W, so one layer's packed bytes are held until all rows are there.
#include <cinttypes>

#include "base/bits.h"
#include "checkpoints/convert/encoder.h"
#include "formats/format_table.h"

namespace metal_marlin {
namespace {

class GptqEncoder final : public Encoder {
 public:
  explicit GptqEncoder(const WeightMeta& meta)
      : meta_(meta),
        words_(static_cast<size_t>(meta.k / 8 * meta.n)),
        zeros_(static_cast<size_t>(meta.groups * (meta.n / 8))),
        scales_(static_cast<size_t>(meta.groups * meta.n)) {}

  Status encode(const Stripe& stripe, int64_t first, int64_t count, const PartWriter&) override {
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

  Status finish(const PartWriter& out) override {
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

Status check(const WeightMeta& meta) {
  if (meta.format == MARLIN_INT4) return {};
  return Status::error(MARLIN_E_UNSUPPORTED, "GPTQ: no layout for %s; it holds int4",
                       format_name(meta.format));
}

Result<std::vector<Part>> parts(const EncoderTarget& target) {
  const WeightMeta& meta = target.meta;
  if (target.experts > 1) {
    return Status::error(MARLIN_E_UNSUPPORTED, "experts: GPTQ has no stacks of experts, found %u",
                         target.experts);
  }
  if (meta.n % 8 != 0 || meta.k % 8 != 0) {
    return Status::error(MARLIN_E_SHAPE,
                         "n, k: GPTQ wants multiples of 8, found %" PRId64 ", %" PRId64, meta.n,
                         meta.k);
  }
  MARLIN_RETURN_IF_ERROR(expect_whole_groups(meta, "GPTQ"));
  MARLIN_RETURN_IF_ERROR(expect_f16_scales(meta, "GPTQ"));
  return std::vector<Part>{{target.base + ".qweight", "I32", {meta.k / 8, meta.n}},
                           {target.base + ".qzeros", "I32", {meta.groups, meta.n / 8}},
                           {target.base + ".scales", "F16", {meta.groups, meta.n}},
                           {target.base + ".g_idx", "I32", {meta.k}}};
}

/// A regular expression that matches this name and no other.
std::string exactly(const std::string& name) {
  std::string pattern = "-:^";
  for (const char c : name) {
    if (std::string_view("\\^$.|?*+()[]{}").find(c) != std::string_view::npos) pattern += '\\';
    pattern += c;
  }
  return pattern + "$";
}

void describe(const WeightMeta& meta, std::span<const std::string> ignore, JsonWriter& config) {
  config.key("quant_method").string("gptq");
  config.key("bits").number("4");
  config.key("group_size").number(std::to_string(meta.groups == 1 ? -1 : meta.group_size));
  config.key("desc_act").boolean(false);
  config.key("sym").boolean(meta.zero_kind == ZeroKind::none);
  config.key("lm_head").boolean(false);
  config.key("checkpoint_format").string("gptq_v2");
  if (ignore.empty()) return;
  config.key("dynamic").begin('{');  // GPTQModel's way to say which modules are floats
  for (const std::string& name : ignore) config.key(exactly(name)).begin('{').end('}');
  config.end('}');
}

}  // namespace

const Scheme kGptq = {.number = MARLIN_SCHEME_GPTQ,
                      .name = "GPTQ",
                      .gguf = false,
                      .divides = false,
                      .sparse = false,
                      .default_group = 0,
                      .check = check,
                      .parts = parts,
                      .encoder = [](const WeightMeta& meta) -> std::unique_ptr<Encoder> {
                        return std::make_unique<GptqEncoder>(meta);
                      },
                      .describe = describe,
                      .own_config = "quantize_config.json"};

}  // namespace metal_marlin
