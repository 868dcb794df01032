// compressed-tensors' marlin-24: 2:4 sparse INT4 in the tiles of a sparse matrix instruction. One
// layer's packed bytes are held until all rows are there.
#include <bit>
#include <cinttypes>

#include "base/bits.h"
#include "checkpoints/convert/encoder.h"
#include "formats/format_table.h"
#include "layouts/marlin_tiles.h"

namespace metal_marlin {
namespace {

class Marlin24Encoder final : public Encoder {
 public:
  explicit Marlin24Encoder(const WeightMeta& meta)
      : meta_(meta),
        words_(static_cast<size_t>(meta.k / 32 * 2 * meta.n)),
        scales_(static_cast<size_t>(meta.groups * meta.n)),
        pattern_(static_cast<size_t>(meta.k / 16 * meta.n)) {}

  Status encode(const Stripe& stripe, int64_t first, int64_t count, const PartWriter&) override {
    std::vector<uint8_t> codes(static_cast<size_t>(meta_.k / 2));
    for (int64_t r = 0; r < count; ++r) {
      const int64_t n = first + r;
      const uint8_t* kept = stripe.kept.data() + r * (meta_.k / 4);
      put_pattern(n, kept);
      size_t next = 0;
      for (int64_t k = 0; k < meta_.k; ++k) {
        if (is_kept(kept, k)) codes[next++] = stripe.codes[static_cast<size_t>(r * meta_.k + k)];
      }
      put_codes(n, codes);
      const int64_t place = marlin_24_permutes_scales(meta_.groups) ? interleaved_8(n) : n;
      for (int64_t g = 0; g < meta_.groups; ++g) {
        scales_[static_cast<size_t>(g * meta_.n + place)] =
            load<uint16_t>(stripe.scales.data() + 2 * (r * meta_.groups + g));
      }
    }
    return {};
  }

  Status finish(const PartWriter& out) override {
    MARLIN_RETURN_IF_ERROR(out(0, 0, std::as_bytes(std::span(words_))));
    MARLIN_RETURN_IF_ERROR(out(1, 0, std::as_bytes(std::span(scales_))));
    return out(2, 0, std::as_bytes(std::span(pattern_)));
  }

 private:
  /// A tile's word j has the kept codes 2 j, 2 j + 8, 2 j + 1, 2 j + 9 of one column, eight bits of
  /// each half. Columns 4 apart share words; stripes are whole tiles wide, so that no two threads
  /// write one word.
  void put_codes(int64_t n, const std::vector<uint8_t>& codes) {
    const TilePlace place = sparse_place(static_cast<int>(n % 64));
    auto tile = static_cast<size_t>(n / 64 * 128 + place.word);
    for (size_t k = 0; k < codes.size(); k += 16, tile += static_cast<size_t>(2 * meta_.n)) {
      for (size_t j = 0; j < 4; ++j) {
        const uint32_t four = uint32_t{codes[k + 2 * j]} | uint32_t{codes[k + 2 * j + 8]} << 4 |
                              uint32_t{codes[k + 2 * j + 1]} << 16 |
                              uint32_t{codes[k + 2 * j + 9]} << 20;
        words_[tile + 4 * j] |= four << 4 * place.nibble;
      }
    }
  }

  void put_pattern(int64_t n, const uint8_t* kept) {
    for (int64_t c = 0; c < meta_.k / 16; ++c) {
      unsigned unit = 0;
      for (int i = 0; i < 4; ++i) {
        const unsigned mask = kept[4 * c + i];
        const int low = std::countr_zero(mask), high = std::bit_width(mask) - 1;
        unit |= static_cast<unsigned>(high << 2 | low) << 4 * i;
      }
      pattern_[static_cast<size_t>(sparse_meta_place(n, c, meta_.n))] = static_cast<uint16_t>(unit);
    }
  }

  WeightMeta meta_;
  std::vector<uint32_t> words_;    // [K / 32][2 N]
  std::vector<uint16_t> scales_;   // [groups][N]
  std::vector<uint16_t> pattern_;  // [K / 32][2 N]
};

Status check(const WeightMeta& meta) {
  if (meta.format == MARLIN_INT4 && meta.sparse && meta.zero_kind == ZeroKind::none) return {};
  return Status::error(MARLIN_E_UNSUPPORTED,
                       "marlin-24: holds symmetric int4 that is pruned to 2:4 or obeys it; "
                       "compressed-tensors holds %s%s%s",
                       meta.sparse ? "" : "dense ",
                       meta.zero_kind == ZeroKind::none ? "" : "asymmetric ",
                       meta.format == MARLIN_INT4 ? "int4" : format_name(meta.format));
}

Result<std::vector<Part>> parts(const EncoderTarget& target) {
  const WeightMeta& meta = target.meta;
  if (target.experts > 1) {
    return Status::error(MARLIN_E_UNSUPPORTED,
                         "experts: marlin-24 has no stacks of experts, found %u", target.experts);
  }
  if (meta.n % 64 != 0 || meta.k % 32 != 0) {
    return Status::error(MARLIN_E_SHAPE,
                         "n, k: marlin-24 wants multiples of 64 and 32, found %" PRId64 ", %" PRId64
                         "; compressed-tensors holds it with zeros",
                         meta.n, meta.k);
  }
  if (meta.groups > 1 && meta.group_size != 128) {
    return Status::error(MARLIN_E_UNSUPPORTED,
                         "group_size: marlin-24 has groups of 128 or one a row, found %" PRId64,
                         meta.group_size);
  }
  MARLIN_RETURN_IF_ERROR(expect_whole_groups(meta, "marlin-24"));
  MARLIN_RETURN_IF_ERROR(expect_f16_scales(meta, "marlin-24"));
  return std::vector<Part>{{target.base + ".weight_packed", "I32", {meta.k / 32, 2 * meta.n}},
                           {target.base + ".scale_packed", "F16", {meta.groups, meta.n}},
                           {target.base + ".meta", "I16", {meta.k / 32, 2 * meta.n}}};
}

void describe(const WeightMeta& meta, std::span<const std::string> ignore, JsonWriter& config) {
  config.key("quant_method").string("compressed-tensors");
  config.key("format").string("marlin-24");
  config.key("quantization_status").string("compressed");
  config.key("config_groups").begin('{').key("group_0").begin('{');
  config.key("targets").begin('[').string("Linear").end(']');
  config.key("weights").begin('{');
  config.key("num_bits").number("4");
  config.key("type").string("int");
  config.key("symmetric").boolean(true);
  config.key("strategy").string(meta.groups == 1 ? "channel" : "group");
  if (meta.groups > 1) config.key("group_size").number(std::to_string(meta.group_size));
  config.end('}').end('}').end('}');
  config.key("ignore").begin('[');
  for (const std::string& name : ignore) config.string(name);
  config.end(']');
}

}  // namespace

const Scheme kMarlin24 = {.number = MARLIN_SCHEME_MARLIN_24,
                          .name = "marlin-24",
                          .gguf = false,
                          .divides = false,
                          .sparse = true,
                          .default_group = 128,
                          .check = check,
                          .parts = parts,
                          .encoder = [](const WeightMeta& meta) -> std::unique_ptr<Encoder> {
                            return std::make_unique<Marlin24Encoder>(meta);
                          },
                          .describe = describe,
                          .own_config = nullptr};

}  // namespace metal_marlin
