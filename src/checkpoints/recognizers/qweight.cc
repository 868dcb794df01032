// `.qweight` + `.scales` (+ `.qzeros`, `.g_idx`): the names that GPTQ and all variants of AWQ
// share. The caller, the config or the shapes, in this order, decide between them.
#include <algorithm>
#include <cinttypes>

#include "base/bits.h"
#include "checkpoints/recognizers/recognizers.h"
#include "layouts/awq_gemv.h"

namespace metal_marlin {
namespace {

struct QweightTensors {
  TensorView qweight, scales, qzeros, g_idx;
};

/// The layout that the shapes allow: GPTQ [K/8, N] with scales [G, N]; AWQ gemm [K, N/8] with
/// scales [G, N]; AWQ gemv [N, K/8] with scales [N, 8 Zw]. AUTO if they allow none or several.
marlin_layout layout_of_shapes(const QweightTensors& p) {
  if (p.qweight.dtype == MARLIN_I16) return MARLIN_LAYOUT_AWQ_GEMV_FAST;
  if (present(p.g_idx)) return MARLIN_LAYOUT_GPTQ_V1;
  if (p.qweight.dims.size() != 2 || p.scales.dims.size() != 2) return MARLIN_LAYOUT_AUTO;
  const bool gptq = p.scales.dims[1] == p.qweight.dims[1];
  const bool awq = p.qweight.dims[1] <= INT64_MAX / 8 && p.scales.dims[1] == 8 * p.qweight.dims[1];
  const bool gemv = p.scales.dims[0] == p.qweight.dims[0] && p.scales.dims[1] % 8 == 0;
  if (gptq + awq + gemv != 1) return MARLIN_LAYOUT_AUTO;
  if (gptq) return MARLIN_LAYOUT_GPTQ_V1;
  return awq ? MARLIN_LAYOUT_AWQ : MARLIN_LAYOUT_AWQ_GEMV;
}

/// AUTO if the config names an unknown variant.
marlin_layout layout_of_config(const QuantConfig& config, const QweightTensors& p) {
  if (config.method == "gptq") {
    if (config.format == "gptq_v2") return MARLIN_LAYOUT_GPTQ_V2;
    return config.format.empty() || config.format == "gptq" ? MARLIN_LAYOUT_GPTQ_V1
                                                            : MARLIN_LAYOUT_AUTO;
  }
  if (p.qweight.dtype == MARLIN_I16 || config.format == "gemv_fast" || config.format == "llm-awq") {
    return MARLIN_LAYOUT_AWQ_GEMV_FAST;
  }
  if (config.format == "gemv") return MARLIN_LAYOUT_AWQ_GEMV;
  return config.format.empty() || config.format == "gemm" ? MARLIN_LAYOUT_AWQ : MARLIN_LAYOUT_AUTO;
}

marlin_layout layout_of(const Finder& finder, const QweightTensors& p) {
  if (finds(RecognizerId::qweight, finder.layout)) return finder.layout;
  if (finder.config.method == "gptq" || finder.config.method == "awq")
    return layout_of_config(finder.config, p);
  const marlin_layout layout = layout_of_shapes(p);
  return layout == MARLIN_LAYOUT_GPTQ_V1 && finder.config.format == "gptq_v2"
             ? MARLIN_LAYOUT_GPTQ_V2
             : layout;
}

Status unknown_layout(const Finder& finder, const QweightTensors& p) {
  if (finder.config.format == "gptq_p") {
    return view_error(p.qweight, MARLIN_E_UNSUPPORTED,
                      "the format gptq_p, which stores codes in planes of bits, is not read");
  }
  return view_error(
      p.qweight, MARLIN_E_UNSUPPORTED,
      "cannot tell the layout (method '%.20s', format '%.20s'): name one when opening the file",
      finder.config.method.c_str(), finder.config.format.c_str());
}

/// Sets the group size of a "gemv" layer whose scales are padded to this many groups. It is a size
/// that the config names. If none of these fits, it is the first, so that the check of the shapes
/// reports what was expected. Without a config, it is the only size that fits.
Status set_padded_group_size(const Finder& finder, int64_t padded, Finding& found) {
  LayoutOperands& o = found.operands;
  const auto fits = [&](int64_t size) {
    const auto groups = awq_gemv_groups(o.k, size);
    return groups &&
           (*groups == padded || (o.layout == MARLIN_LAYOUT_AWQ_GEMV_FAST && o.k / size == padded));
  };
  const GroupSizes& named = finder.config.group_sizes;
  o.group_size = named.first().value_or(0);
  std::optional<uint32_t> best;
  // The padding is less than 32 groups, so only few sizes can fit, however many the config names.
  for (int64_t groups = std::max<int64_t>(padded - 31, 1); groups <= std::min(padded, o.k);
       ++groups) {
    const auto place = named.place_of(o.k / groups);
    if (!place || !fits(o.k / groups) || (best && *best < *place)) continue;
    best = place;
    o.group_size = o.k / groups;
  }
  if (o.group_size != 0) return {};
  for (const int64_t size : {int64_t{32}, int64_t{64}, int64_t{128}, o.k}) {
    if (!fits(size) || size == o.group_size) continue;
    if (o.group_size != 0) {
      return view_error(o.scales, MARLIN_E_UNSUPPORTED,
                        "cannot tell the group size (%" PRId64 " or %" PRId64
                        "): expected one in config.json",
                        o.group_size, size);
    }
    o.group_size = size;
  }
  return {};
}

/// The integer after the first ':' of "gptqmodel:5.8.0".
std::optional<uint32_t> major_version(std::string_view quantizer) {
  const size_t colon = quantizer.find(':');
  if (colon == std::string_view::npos) return std::nullopt;
  quantizer.remove_prefix(colon + 1);
  return take_number(quantizer);
}

/// How the writer's own reader reads the largest stored zero; AUTO if the writer is unknown. For
/// codes of 3 bits, GPTQModel changed its reading: CARRY is that of the versions before 7, whose
/// words differ even for other zeros.
marlin_gptq_zero_f zero_f_of(std::string_view quantizer, int64_t bits) {
  if (quantizer.starts_with("gptqmodel")) {
    if (bits != 3) return MARLIN_GPTQ_ZERO_F_CARRY;
    const auto major = major_version(quantizer);
    if (!major) return MARLIN_GPTQ_ZERO_F_AUTO;
    return *major < 7 ? MARLIN_GPTQ_ZERO_F_CARRY : MARLIN_GPTQ_ZERO_F_WRAP;
  }
  if (quantizer.starts_with("auto_gptq") || quantizer.starts_with("autogptq"))
    return MARLIN_GPTQ_ZERO_F_WRAP;
  return MARLIN_GPTQ_ZERO_F_AUTO;
}

/// Whether the words of columns and of zeros, as far as they tell, hold codes of this width.
bool is_gptq_width(const QweightTensors& p, int64_t bits) {
  const auto fits = [&](int64_t words, int64_t codes) {
    return words >= 0 && words <= INT32_MAX && codes <= INT32_MAX &&
           words == ceil_div(codes * bits, 32);
  };
  if (present(p.g_idx) && !fits(rows_of(p.qweight), cols_of(p.g_idx))) return false;
  return !present(p.qzeros) || fits(cols_of(p.qzeros), cols_of(p.qweight));
}

/// The bits of a code of GPTQ. The tensors decide, because a config may have other widths for
/// single layers.
int64_t gptq_bits(const Finder& finder, const QweightTensors& p) {
  const int64_t named = finder.config.bits.value_or(4);
  if ((named >= 2 && named <= 8 && is_gptq_width(p, named)) ||
      (!present(p.g_idx) && !present(p.qzeros)))
    return named;
  for (const int64_t bits : {4, 8, 3, 2, 5, 6, 7}) {
    if (is_gptq_width(p, bits)) return bits;
  }
  return named;
}

/// Checks the width of the codes and sets the format.
Status set_format(const Finder& finder, const QweightTensors& p, bool gptq, int64_t bits,
                  Finding& found) {
  const bool is_read = bits == 4 || (gptq && (bits == 2 || bits == 3 || bits == 8));
  const auto format = integer_format(bits);
  if (!is_read || !format) {
    return view_error(p.qweight, MARLIN_E_UNSUPPORTED,
                      "expected codes of %s bits, found %" PRId64 " bits",
                      gptq ? "2, 3, 4 or 8" : "4", bits);
  }
  const bool zeros = present(p.qzeros) && !finder.config.symmetric.value_or(true);
  found.layer.format = found.operands.format =
      *format == MARLIN_INT8 && zeros ? MARLIN_UINT8 : *format;
  return {};
}

void set_gptq(const Finder& finder, const QweightTensors& p, int64_t bits, Finding& found) {
  LayoutOperands& o = found.operands;
  o.group_index = p.g_idx;
  found.layer.n = cols_of(p.qweight);
  found.layer.k = present(p.g_idx) ? cols_of(p.g_idx)
                                   : std::min<int64_t>(rows_of(p.qweight), INT32_MAX) * 32 / bits;
  // Files without act-order have a g_idx, too, which is k / group. Its data are read only when the
  // layer is read.
  if (present(p.g_idx) && finder.config.act_order.value_or(true))
    found.layer.flags |= MARLIN_LAYER_ACT_ORDER;
  o.zero_f = finder.zero_f != MARLIN_GPTQ_ZERO_F_AUTO ? finder.zero_f
                                                      : zero_f_of(finder.config.quantizer, bits);
  o.symmetric = finder.config.symmetric.value_or(false);
}

void set_awq(const QweightTensors& p, Finding& found) {
  found.layer.n = cols_of(p.scales);
  found.layer.k = rows_of(p.qweight);
}

void set_gemv(const Finder& finder, const QweightTensors& p, Finding& found) {
  LayoutOperands& o = found.operands;
  const bool fast = o.layout == MARLIN_LAYOUT_AWQ_GEMV_FAST;
  found.layer.n = o.n = fast ? cols_of(p.scales) : rows_of(p.qweight);
  found.layer.k = o.k =
      fast ? cols_of(p.qweight) : std::min<int64_t>(cols_of(p.qweight), INT32_MAX) * 8;
  if (fast) o.flags = MARLIN_PACK_ADDITIVE_ZEROS;
  found.layer.status =
      set_padded_group_size(finder, fast ? rows_of(p.scales) : cols_of(p.scales), found);
}

}  // namespace

std::optional<Finding> recognize_qweight(const Finder& finder, const TensorView& tensor) {
  const auto base = without_suffix(tensor.name, ".qweight");
  if (!base) return std::nullopt;
  QweightTensors p{tensor, finder.find(*base, ".scales"), finder.find(*base, ".qzeros"),
                   finder.find(*base, ".g_idx")};
  if (!present(p.qzeros)) p.qzeros = finder.find(*base, ".scaled_zeros");  // llm-awq
  const marlin_layout layout = layout_of(finder, p);
  Finding found;
  found.layer.name = *base;
  LayoutOperands& o = found.operands;
  o.values = p.qweight;
  o.scales = p.scales;
  o.zeros = p.qzeros;
  const bool gptq = layout == MARLIN_LAYOUT_GPTQ_V1 || layout == MARLIN_LAYOUT_GPTQ_V2;
  if (layout == MARLIN_LAYOUT_AUTO) {
    found.layer.layout = o.layout = MARLIN_LAYOUT_AUTO;
    found.layer.status = unknown_layout(finder, p);
    return found;
  }
  found.set_layout(*caller_layout(layout));
  const int64_t bits = gptq ? gptq_bits(finder, p) : finder.config.bits.value_or(4);
  found.layer.status = set_format(finder, p, gptq, bits, found);
  if (!found.layer.status.ok()) return found;
  if (!present(p.scales)) {
    found.set_missing(".scales");
    return found;
  }
  if (!present(p.qzeros) && !gptq) {
    found.set_missing(".qzeros");
    return found;
  }
  if (layout == MARLIN_LAYOUT_AWQ_GEMV || layout == MARLIN_LAYOUT_AWQ_GEMV_FAST) {
    set_gemv(finder, p, found);
    return found;
  }
  gptq ? set_gptq(finder, p, bits, found) : set_awq(p, found);
  o.n = found.layer.n;
  o.k = found.layer.k;
  o.group_size = group_size_of(finder.config, o.k, rows_of(p.scales)).value_or(0);
  return found;
}

}  // namespace metal_marlin
