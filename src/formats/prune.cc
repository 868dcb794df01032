#include "formats/prune.h"

#include <algorithm>
#include <cinttypes>
#include <cmath>

#include "formats/codecs.h"
#include "formats/decode.h"
#include "formats/format_table.h"

namespace metal_marlin {
namespace {

Status too_many(const std::string& name, int64_t row, int64_t block, unsigned mask) {
  return Status::error(MARLIN_E_FORMAT,
                       "%.120s: row %" PRId64 ", block %" PRId64 " (columns %" PRId64 "..%" PRId64
                       "): expected at most two elements that are not 0 (2:4), found %d",
                       name.c_str(), row, block, 4 * block, 4 * block + 3, std::popcount(mask));
}

/// The mask of one block by the magnitudes of its elements.
uint8_t keep_of_block(const double (&magnitude)[4], const SparseRule& rule, int64_t column) {
  if (rule.column_norms.empty()) return keep_two_largest(magnitude);
  double score[4];
  for (int i = 0; i < 4; ++i) {
    // A magnitude below 0 stands for an element that is pruned already. f32_to_f64 is right even
    // under denormals-are-zero.
    const double norm = f32_to_f64(rule.column_norms[static_cast<size_t>(column + i)]);
    score[i] = magnitude[i] < 0 ? magnitude[i] : magnitude[i] * norm;
  }
  return keep_two_largest(score);
}

unsigned non_zeros(const double (&magnitude)[4]) {
  unsigned mask = 0;
  for (int i = 0; i < 4; ++i) mask |= magnitude[i] != 0 ? 1u << i : 0u;
  return mask;
}

class SparseSource final : public WeightSource {
 public:
  SparseSource(std::unique_ptr<WeightSource> source, WeightMeta meta, const SparseRule& rule)
      : source_(std::move(source)), rule_(rule) {
    warning_ = source_->warning();
    meta_ = std::move(meta);
  }

  Status read(int64_t first, int64_t count, Stripe& out) const override {
    MARLIN_RETURN_IF_ERROR(source_->read(first, count, out));
    return keep(first, count, out);
  }

  /// Reads all rows once and writes the norms of all elements and of the kept ones into the meta.
  Status sum_norms() {
    KeptNorm norm;
    Stripe stripe;
    const auto k = static_cast<size_t>(meta_.k);
    std::vector<float> before(k);
    for (int64_t row = 0; row < meta_.n; ++row) {
      MARLIN_RETURN_IF_ERROR(source_->read(row, 1, stripe));
      decode_rows(source_->meta(), stripe, row, 1, before.data());
      MARLIN_RETURN_IF_ERROR(keep(row, 1, stripe));
      for (size_t i = 0; i < k; ++i)
        norm.add(f32_to_f64(before[i]), is_kept(stripe.kept.data(), static_cast<int64_t>(i)));
      norm.end_row();
    }
    norm.store(meta_);
    return {};
  }

 private:
  /// Sets the masks by the rule for a stripe of the source: rows [first, first + count).
  Status keep(int64_t first, int64_t count, Stripe& out) const {
    const bool was_sparse = source_->meta().sparse;
    const int64_t blocks = meta_.k / 4;
    if (!was_sparse) out.kept.assign(static_cast<size_t>(count * blocks), 0b1111);
    for (int64_t r = 0; r < count; ++r) {
      int64_t current = -1;
      Magnitudes of_code{};
      for (int64_t b = 0; b < blocks; ++b) {
        const int64_t group = 4 * b / meta_.group_size;
        if (group != current) of_code = magnitudes(out, r, current = group);
        const uint8_t* codes = out.codes.data() + r * meta_.k + 4 * b;
        uint8_t& kept = out.kept[static_cast<size_t>(r * blocks + b)];
        double magnitude[4];
        for (int i = 0; i < 4; ++i)
          magnitude[i] = (kept >> i & 1) != 0 ? of_code.of[codes[i] & 15] : -1;
        if (rule_.sparsity == Sparsity::prune) {
          kept = keep_of_block(magnitude, rule_, 4 * b);
          continue;
        }
        const unsigned mask = non_zeros(magnitude);
        if (std::popcount(mask) > 2) return too_many("values", first + r, b, mask);
        kept = fill_kept(mask);
      }
    }
    return {};
  }

  /// The magnitude of each code of one group, in any unit.
  struct Magnitudes {
    double of[16];
  };

  Magnitudes magnitudes(const Stripe& stripe, int64_t row, int64_t group) const {
    Magnitudes m{};
    const float* codebook = format_row(meta_.format)->codebook;
    const bool additive = meta_.zero_kind == ZeroKind::additive;
    const int zero = meta_.zero_kind == ZeroKind::integer
                         ? stripe.zeros[static_cast<size_t>(row * meta_.groups + group)]
                         : 8;
    const GroupScale scale = additive ? decode_group(meta_, stripe, row, group) : GroupScale{};
    for (uint8_t code = 0; code < 16; ++code) {
      if (codebook != nullptr)
        m.of[code] = std::fabs(f32_to_f64(codebook[code]));
      else if (additive)
        m.of[code] = std::fabs(f32_to_f64(decode_value(meta_, code, scale, nullptr)));
      else
        m.of[code] = std::abs(code - zero);
    }
    return m;
  }

  std::unique_ptr<WeightSource> source_;
  SparseRule rule_;
};

}  // namespace

Result<SparseRule> sparse_rule(uint32_t flags, std::span<const float> column_norms) {
  const bool prune = (flags & MARLIN_PACK_PRUNE_2_4) != 0,
             obey = (flags & MARLIN_PACK_OBEYS_2_4) != 0;
  if (prune && obey)
    return Status::error(MARLIN_E_ARGUMENT,
                         "flags: expected one of PRUNE_2_4 and OBEYS_2_4, found both");
  if (!prune && !column_norms.empty()) {
    return Status::error(MARLIN_E_ARGUMENT, "column_norms: expected none without PRUNE_2_4");
  }
  SparseRule rule{Sparsity::as_given, column_norms};
  if (obey) rule.sparsity = Sparsity::obey;
  if (prune) rule.sparsity = Sparsity::prune;
  return rule;
}

Status check_kept(const WeightMeta& meta, const Stripe& stripe, int64_t first, int64_t rows) {
  const int64_t quads = meta.k / 4;
  if (static_cast<int64_t>(stripe.kept.size()) != rows * quads)
    return Status::error(MARLIN_E_FORMAT,
                         "2:4 sparse rows %" PRId64 "..%" PRId64 ": expected %" PRId64
                         " masks, found %zu",
                         first, first + rows - 1, rows * quads, stripe.kept.size());
  // Bit m is set if the mask m has two bits. (On the baseline, counting bits would be a call.)
  constexpr unsigned kTwoOfFour = 1u << 3 | 1u << 5 | 1u << 6 | 1u << 9 | 1u << 10 | 1u << 12;
  const auto bad = std::find_if(stripe.kept.begin(), stripe.kept.end(), [](uint8_t kept) {
    return kept > 15 || (kTwoOfFour >> kept & 1u) == 0;
  });
  if (bad == stripe.kept.end()) return {};
  const int64_t at = bad - stripe.kept.begin();
  return Status::error(MARLIN_E_FORMAT,
                       "2:4 sparse row %" PRId64 ", block %" PRId64
                       " of 4: expected a mask of two kept elements, found 0x%x",
                       first + at / quads, at % quads, *bad);
}

Status check_column_norms(std::span<const float> norms, int64_t k) {
  if (norms.empty()) return {};
  if (static_cast<int64_t>(norms.size()) != k) {
    return Status::error(MARLIN_E_SHAPE,
                         "column_norms: expected [1, %" PRId64 "], found %zu numbers", k,
                         norms.size());
  }
  for (size_t i = 0; i < norms.size(); ++i) {
    const float norm = norms[i];
    if (std::isfinite(norm) && norm >= 0) continue;
    return Status::error(
        MARLIN_E_FORMAT,
        "column_norms[%zu]: expected a finite number that is not negative, found %g", i,
        static_cast<double>(norm));
  }
  return {};
}

Status keep_of_floats(std::span<const double> w, const SparseRule& rule, const std::string& name,
                      int64_t row, uint8_t* kept) {
  for (size_t b = 0; b < w.size() / 4; ++b) {
    double magnitude[4];
    for (size_t i = 0; i < 4; ++i) magnitude[i] = std::fabs(w[4 * b + i]);
    if (rule.sparsity == Sparsity::prune) {
      kept[b] = keep_of_block(magnitude, rule, static_cast<int64_t>(4 * b));
      continue;
    }
    const unsigned mask = non_zeros(magnitude);
    if (std::popcount(mask) > 2) return too_many(name, row, static_cast<int64_t>(b), mask);
    kept[b] = fill_kept(mask);
  }
  return {};
}

Result<std::unique_ptr<WeightSource>> make_sparse(std::unique_ptr<WeightSource> source,
                                                  const SparseRule& rule) {
  WeightMeta meta = source->meta();
  if (rule.sparsity == Sparsity::obey && meta.sparse) {
    return Status::error(MARLIN_E_ARGUMENT,
                         "flags: OBEYS_2_4 is about dense values, found 2:4 metadata");
  }
  MARLIN_RETURN_IF_ERROR(check_column_norms(rule.column_norms, meta.k));
  meta.sparse = true;
  MARLIN_RETURN_IF_ERROR(check_meta(meta));
  auto sparse = std::make_unique<SparseSource>(std::move(source), std::move(meta), rule);
  if (rule.sparsity == Sparsity::prune) MARLIN_RETURN_IF_ERROR(sparse->sum_norms());
  return std::unique_ptr<WeightSource>(std::move(sparse));
}

}  // namespace metal_marlin
