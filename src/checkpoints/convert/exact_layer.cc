#include "checkpoints/convert/exact_layer.h"

#include <algorithm>
#include <atomic>

#include "base/bits.h"
#include "checkpoints/convert/quantize_layer.h"
#include "formats/format_table.h"
#include "formats/recode.h"

namespace metal_marlin {
namespace {

using Sources = std::vector<std::unique_ptr<WeightSource>>;

/// Whether the scheme would give the weights the tensor scale that they have.
bool keeps_tensor_scale(const WeightMeta& from, const Scheme& scheme) {
  if (from.tensor_scales.empty()) return true;
  const TensorScale& scale = from.tensor_scales[0];
  return from.tensor_scales.size() == 1 && scale.divide == scheme.divides && scale.divisor == 1;
}

/// Whether all values of a source have a place in weights of this meta.
Result<bool> fits(const WeightSource& source, const WeightMeta& to, const Scheme& scheme,
                  const ConvertHost& host) {
  if (!may_recode(source.meta(), to) || !keeps_tensor_scale(source.meta(), scheme)) return false;
  const int64_t rows = stripe_rows(to.k);
  std::atomic<bool> all{true};
  MARLIN_RETURN_IF_ERROR(
      run_tasks(host, static_cast<uint32_t>(ceil_div(to.n, rows)), [&](uint32_t i) -> Status {
        if (!all) return {};
        const int64_t first = i * rows, count = std::min(rows, to.n - first);
        Stripe in, out;
        MARLIN_RETURN_IF_ERROR(source.read(first, count, in));
        if (!recode(source.meta(), in, to, count, out)) all = false;
        return {};
      }));
  return all.load();
}

bool is_integer(const FormatRow& row) {
  return row.numbers == CodeNumbers::from_zero || row.numbers == CodeNumbers::twos_signed;
}

/// The kinds of weights that the options allow, in the order in which they are tried. A request for
/// integers without a group size allows all integers of as many bits.
Result<std::vector<WeightMeta>> candidates(const Scheme& scheme, const ConvertOptions& options,
                                           size_t place, const WeightMeta& from) {
  const bool typed = !options.types.empty() && options.types[place] != nullptr;
  if (options.format == MARLIN_FORMAT_NONE && !typed) {
    const auto kinds = scheme.encoder().kinds;
    if (kinds != nullptr) return kinds(from.n, from.k);
    return Status::error(MARLIN_E_UNSUPPORTED,
                         "%s: a format has to be named, because all layers of a file share it",
                         scheme.name);
  }
  MARLIN_ASSIGN(const WeightMeta asked, requested_meta(scheme, options, place, from.n, from.k));
  std::vector<WeightMeta> all{asked};
  if (typed) return all;
  const FormatRow& row = *format_row(options.format);
  if (scheme.encoder().kinds != nullptr && options.group_size == 0 && is_integer(row)) {
    for (WeightMeta& kind : scheme.encoder().kinds(from.n, from.k)) {
      const FormatRow& other = *format_row(kind.format);
      if (is_integer(other) && other.code_bits <= row.code_bits) all.push_back(std::move(kind));
    }
  }
  if (is_two_level(from.scale_type) || from.has_nested_scales()) return all;
  all.push_back(asked);  // the same with the scales of the input
  all.back().scale_type = from.scale_type;
  if (scheme.additive) all.back().zero_type = from.scale_type;
  return all;
}

}  // namespace

Result<std::optional<WeightMeta>> exact_meta(const Checkpoint& input, const Scheme& scheme,
                                             const ConvertOptions& options, size_t place) {
  const std::optional<WeightMeta> none;
  const size_t index = options.layers[place];
  const Layer layer = input.layer(index);
  MARLIN_RETURN_IF_ERROR(layer.status);
  if (options.sparsity != Sparsity::as_given) return none;
  Sources sources;
  for (uint32_t expert = 0; expert < layer.experts; ++expert) {
    MARLIN_ASSIGN(auto source, input.source(index, expert, {}));
    sources.push_back(std::move(source));
  }
  MARLIN_ASSIGN(const std::vector<WeightMeta> all,
                candidates(scheme, options, place, sources[0]->meta()));
  const LayoutEncoder encoder = scheme.encoder();
  for (WeightMeta meta : all) {
    if (!encoder.check(meta).ok() || !encoder.tensors(meta, layer.experts).ok()) continue;
    bool exact = true;
    for (size_t i = 0; exact && i < sources.size(); ++i) {
      MARLIN_ASSIGN(exact, fits(*sources[i], meta, scheme, options.host));
    }
    if (exact) return std::optional(meta);
  }
  return none;
}

Result<std::unique_ptr<WeightSource>> exact_source(const Checkpoint& input, size_t layer,
                                                   uint32_t expert, const WeightMeta& meta,
                                                   const Scheme& scheme) {
  MARLIN_ASSIGN(auto source, input.source(layer, expert, {}));
  WeightMeta to = meta;
  to.tensor_scales = source->meta().tensor_scales;
  if (meta.format == MARLIN_FORMAT_NVFP4 && to.tensor_scales.empty())
    to.tensor_scales = {{0, 1, scheme.divides}};
  return make_recoded(std::move(source), to);
}

}  // namespace metal_marlin
