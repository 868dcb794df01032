// `.qweight` + `.scales` (+ `.qzeros`, `.g_idx`): the names that GPTQ and all variants of AWQ
// share. The caller, the config or the shapes, in this order, decide between them.
#include <algorithm>
#include <cinttypes>

#include "base/bits.h"
#include "checkpoints/recognizers/recognizers.h"
#include "layouts/awq_gemv.h"
#include "layouts/gptq_zeros.h"

namespace metal_marlin {
namespace {

struct QweightTensors {
  TensorView qweight, scales, qzeros, g_idx;
  bool wide = false;  ///< words of 64 bits, which are taken for twice as many of 32
};

bool is_gptq(marlin_layout layout) {
  return layout == MARLIN_LAYOUT_GPTQ_V1 || layout == MARLIN_LAYOUT_GPTQ_V2;
}

/// The layout that the shapes allow: GPTQ [K/8, N] with scales [G, N]; AWQ gemm [K, N/8] with
/// scales [G, N]; AWQ gemv [N, K/8] with scales [N, 8 Zw]. AUTO if they allow none or several. They
/// do not tell GPTQ v1 from v2.
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

/// A layout of the config, and whether the config tells GPTQ v1 from v2.
struct Named {
  marlin_layout layout = MARLIN_LAYOUT_AUTO;
  bool tells_version = true;
};

/// AutoRound writes the zeros of GPTQ v2, or lets the packers of AutoGPTQ (v1) and AutoAWQ write.
/// Its other back ends have stored both.
Named layout_of_autoround(const QuantConfig& config) {
  const std::string_view packing = config.packing;
  if (packing.find("awq") != std::string_view::npos) return {MARLIN_LAYOUT_AWQ};
  if (packing.find("auto_gptq") != std::string_view::npos ||
      packing.find("autogptq") != std::string_view::npos)
    return {MARLIN_LAYOUT_GPTQ_V1};
  if (packing == "auto_round" || packing.find("gptqmodel") != std::string_view::npos)
    return {MARLIN_LAYOUT_GPTQ_V2};
  return {MARLIN_LAYOUT_GPTQ_V1, false};
}

/// AUTO if the config names an unknown variant.
Named layout_of_config(const QuantConfig& config, const QweightTensors& p) {
  const std::string& format = config.format;
  if (config.method == "gptq" || config.method == "gptqmodel") {
    if (format == "gptq_v2") return {MARLIN_LAYOUT_GPTQ_V2};
    if (format == "gptq") return {MARLIN_LAYOUT_GPTQ_V1};
    // AutoGPTQ, which wrote v1, named no format.
    if (format.empty()) return {MARLIN_LAYOUT_GPTQ_V1};
    return {};
  }
  if (p.qweight.dtype == MARLIN_I16 || format == "gemv_fast" || format == "llm-awq")
    return {MARLIN_LAYOUT_AWQ_GEMV_FAST};
  if (format == "gemv") return {MARLIN_LAYOUT_AWQ_GEMV};
  // "exllama" and "ipex" are kernels for the words of "gemm".
  const bool gemm = format.empty() || format == "gemm" || format == "exllama" ||
                    format == "exllamav2" || format == "ipex" || format == "marlin";
  return {gemm ? MARLIN_LAYOUT_AWQ : MARLIN_LAYOUT_AUTO};
}

Named named_layout(const Finder& finder, const QweightTensors& p) {
  const QuantConfig& config = finder.config;
  if (finds(RecognizerId::qweight, finder.layout)) return {finder.layout};
  if (config.method.find("auto-round") != std::string::npos || config.method == "auto_round")
    return layout_of_autoround(config);
  if (config.method.starts_with("gptq") || config.method.starts_with("awq"))
    return layout_of_config(config, p);
  const marlin_layout layout = layout_of_shapes(p);
  if (!is_gptq(layout)) return {layout};
  if (config.format == "gptq_v2") return {MARLIN_LAYOUT_GPTQ_V2};
  return {layout, config.format == "gptq"};
}

/// The zero that all stored zeros have, if they are all the same. Files of any size are opened, so
/// of many zeros only the first are read here; reading the layer compares them all.
std::optional<int> common_zero(const QweightTensors& p, int64_t n, int64_t bits) {
  constexpr int64_t kMost = 1 << 14;
  const int64_t groups = rows_of(p.qzeros);
  const bool is_read = bits == 2 || bits == 3 || bits == 4 || bits == 8;
  if (!is_read || !present(p.qzeros) || n < 1 || n > INT32_MAX || groups < 1 ||
      (p.qzeros.dtype != MARLIN_I32 && p.qzeros.dtype != MARLIN_U32) ||
      cols_of(p.qzeros) != GptqZeros::words_of_row(n, static_cast<int>(bits)))
    return std::nullopt;
  const int64_t some = std::clamp<int64_t>(kMost / n, 1, groups);
  const GptqZeros zeros(p.qzeros.data, n, some, static_cast<int>(bits), ZeroReading::as_stored);
  const int first = zeros.at(0, 0);
  return zeros.find_other_than(first) ? std::nullopt : std::optional(first);
}

/// Decides between v1 and v2, which differ in the zeros alone. The zero of symmetric codes is in
/// the middle. Zeros that are all stored as the middle tell v2, even against the config. Zeros that
/// are all stored one below it tell v1. Otherwise the config must tell the version.
Status settle_version(const Finder& finder, const QweightTensors& p, int64_t bits, Named& named) {
  if (!is_gptq(named.layout) || finder.layout != MARLIN_LAYOUT_AUTO) return {};
  if (!present(p.qzeros)) return {};
  const auto zero = common_zero(p, cols_of(p.qweight), bits);
  const int middle = 1 << bits >> 1;
  if (zero && finder.config.symmetric.value_or(true) && (*zero == middle || *zero == middle - 1)) {
    named.layout = *zero == middle ? MARLIN_LAYOUT_GPTQ_V2 : MARLIN_LAYOUT_GPTQ_V1;
    return {};
  }
  if (named.tells_version) return {};
  return view_error(p.qzeros, MARLIN_E_UNSUPPORTED,
                    "cannot tell GPTQ v1 (zeros less 1) from v2: expected checkpoint_format or "
                    "packing_format in a config, or the layout when opening");
}

Status unknown_layout(const Finder& finder, const QweightTensors& p) {
  if (finder.config.format == "gptq_p") {
    return view_error(p.qweight, MARLIN_E_UNSUPPORTED,
                      "the format gptq_p, which stores codes in planes of bits, is not read");
  }
  return view_error(p.qweight, MARLIN_E_UNSUPPORTED,
                    "cannot tell the layout (method '%.20s', format '%.20s'): expected GPTQ or AWQ "
                    "in a config, or the layout when opening",
                    finder.config.method.c_str(), finder.config.format.c_str());
}

/// GPTQModel's pack_dtype int64: each word is two words of 32 bits of its column, or for zeros of
/// its row.
void take_wide_words(QweightTensors& p) {
  p.wide = p.qweight.dtype == MARLIN_I64 && p.qweight.dims.size() == 2;
  for (TensorView* view : {&p.qweight, &p.qzeros}) {
    if (view->dtype != MARLIN_I64 || view->dims.size() != 2 || view->dims[0] > INT32_MAX ||
        view->dims[1] > INT32_MAX)
      continue;
    view->dims[view == &p.qweight ? 0 : 1] *= 2;
    view->row_stride = view->dims[1];
    view->dtype = MARLIN_I32;
  }
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
  // Symmetric codes of 8 bits are INT8, and others UINT8. A config may say "symmetric" of all
  // layers although one is not.
  const auto zero = common_zero(p, cols_of(p.qweight), bits);
  const int stored = found.operands.layout == MARLIN_LAYOUT_GPTQ_V2 ? 128 : 127;
  const bool zeros = present(p.qzeros) && bits == 8 &&
                     (!finder.config.symmetric.value_or(true) || !zero || *zero != stored);
  found.layer.format = found.operands.format =
      *format == MARLIN_FORMAT_INT8 && zeros ? MARLIN_FORMAT_UINT8 : *format;
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

/// The first of `experts` matrices: what a part of a stack is but for its first dimension.
void peel(TensorView& view, int64_t experts, size_t rank) {
  if (!present(view) || view.dims.size() != rank || view.dims[0] != experts || experts < 1) return;
  view.dims.erase(view.dims.begin());
  view.bytes /= static_cast<uint64_t>(experts);
}

void stack(TensorView& view, int64_t experts) {
  if (!present(view)) return;
  view.dims.insert(view.dims.begin(), experts);
  view.bytes *= static_cast<uint64_t>(experts);
}

Finding find_matrix(const Finder& finder, std::string_view base, const QweightTensors& p) {
  Named named = named_layout(finder, p);
  Finding found;
  found.layer.name = base;
  LayoutOperands& o = found.operands;
  o.values = p.qweight;
  o.scales = p.scales;
  o.zeros = p.qzeros;
  o.group_index = p.g_idx;
  const bool gptq = is_gptq(named.layout);
  const int64_t bits = gptq ? gptq_bits(finder, p) : finder.config.bits.value_or(4);
  Status status = named.layout == MARLIN_LAYOUT_AUTO ? unknown_layout(finder, p)
                                                     : settle_version(finder, p, bits, named);
  if (!status.ok()) {
    found.layer.layout = o.layout = MARLIN_LAYOUT_AUTO;
    found.layer.status = status;
    return found;
  }
  if (p.wide) found.rearrange(&LayoutOperands::values, Rearrangement::halve_words);
  found.set_layout(*caller_layout(named.layout));
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
  if (!gptq) o.group_index = {};
  if (named.layout == MARLIN_LAYOUT_AWQ_GEMV || named.layout == MARLIN_LAYOUT_AWQ_GEMV_FAST) {
    set_gemv(finder, p, found);
    return found;
  }
  gptq ? set_gptq(finder, p, bits, found) : set_awq(p, found);
  o.n = found.layer.n;
  o.k = found.layer.k;
  o.group_size = group_size_of(finder.config, o.k, rows_of(p.scales)).value_or(0);
  return found;
}

}  // namespace

std::optional<Finding> recognize_qweight(const Finder& finder, const TensorView& tensor) {
  const auto base = finder.base_of(tensor.name, ".qweight");
  if (!base) return std::nullopt;
  const auto part = [&](const char* dotted, const char* joined, const char* other = "") {
    const char* const names[] = {dotted, joined, other};
    return finder.find_any(*base, std::span(names).first(*other == 0 ? 2 : 3));
  };
  QweightTensors p{tensor, part(".scales", "_scales"),
                   part(".qzeros", "_qzeros", ".scaled_zeros"),  // the last: llm-awq
                   part(".g_idx", "_g_idx")};
  const bool stacked = tensor.dims.size() == 3 && tensor.dims[0] > 0;
  const int64_t experts = stacked ? tensor.dims[0] : 1;
  if (stacked) {
    for (TensorView* view : {&p.qweight, &p.scales, &p.qzeros}) peel(*view, experts, 3);
    peel(p.g_idx, experts, 2);
  }
  take_wide_words(p);
  Finding found = find_matrix(finder, *base, p);
  if (!stacked) return found;
  LayoutOperands& o = found.operands;
  for (TensorView* view : {&o.values, &o.scales, &o.zeros, &o.group_index}) stack(*view, experts);
  found.stacked = true;
  found.layer.experts = static_cast<uint32_t>(std::min<int64_t>(experts, UINT32_MAX));
  return found;
}

std::optional<Finding> recognize_quark(const Finder& finder, const TensorView& tensor) {
  const auto base = without_suffix(tensor.name, ".weight");
  if (!base || finder.config.method != "quark" || tensor.dtype != MARLIN_I32 ||
      tensor.dims.size() != 2)
    return std::nullopt;
  const QweightTensors p{
      tensor, finder.find(*base, ".weight_scale"), finder.find(*base, ".weight_zero_point"), {}};
  const bool known = finder.config.pack_method == "reorder" &&
                     finder.config.weight_dtype == "uint4" && present(p.scales) &&
                     present(p.qzeros);
  if (!known) return std::nullopt;
  Finding found;
  found.layer.name = *base;
  LayoutOperands& o = found.operands;
  o.values = p.qweight;
  o.scales = p.scales;
  o.zeros = p.qzeros;
  found.set_layout(LayoutId::awq);
  found.layer.format = o.format = MARLIN_FORMAT_INT4;
  set_awq(p, found);
  o.n = found.layer.n;
  o.k = found.layer.k;
  o.group_size = group_size_of(finder.config, o.k, rows_of(p.scales)).value_or(0);
  return found;
}

}  // namespace metal_marlin
