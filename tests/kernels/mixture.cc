#include "mixture.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <string>

#include "guarded_stream.h"

namespace trial {

void vary(Case& c, uint32_t seed) {
  constexpr marlin_dtype kActivations[] = {MARLIN_F32, MARLIN_F16, MARLIN_BF16};
  c.seed = seed;
  c.a_type = kActivations[seed % 3];
  c.strides = static_cast<Strides>(seed % 3);
  c.c_type = seed % 4 == 0 ? MARLIN_BF16 : MARLIN_F32;
  c.bias_type = seed % 5 == 0 ? 0 : MARLIN_F16;
  c.accumulate = seed % 4 == 2;
}

Mixture::Mixture(const Case& spec, const Mix& mix, std::span<const int32_t> ids) : mix_(mix), like_(with_rows(spec, mix)) {
  std::mt19937 random(spec.seed);
  for (int64_t e = 0; e < mix.experts; ++e) {
    Case one = like_.spec;
    one.m = 1;
    one.seed = spec.seed + static_cast<uint32_t>(7919 * e);
    if (mix.orders_differ) {
      const bool last = e + 1 == mix.experts;
      one.order = e == 0 ? Order::plain : last ? Order::unequal : static_cast<Order>(random() % 3);
    }
    experts_.push_back(std::make_unique<Trial>(one));
  }
  if (mix.tokens == 0) return;
  ids_ = Matrix(mix.tokens, mix.top_k, MARLIN_I32, spec.strides);
  if (mix.scales_type != 0) scales_ = Matrix(mix.tokens, mix.top_k, mix.scales_type, spec.strides);
  for (int64_t slot = 0; slot < slots(); ++slot) {
    const int32_t expert = ids.empty() ? pick(slot, random) : ids[static_cast<size_t>(slot)];
    std::memcpy(ids_.bytes(slot / mix.top_k) + slot % mix.top_k * 4, &expert, sizeof expert);
    chosen_.push_back(expert >= 0 && expert < mix.experts ? expert : -1);
    // What a slot without expert would be scaled by is not looked at.
    if (mix.scales_type != 0)
      scales_.set(slot / mix.top_k, slot % mix.top_k, chosen_.back() < 0 ? NAN : 0.1 + 0.01 * static_cast<double>(slot % 37));
  }
  if (spec.bias_type == 0) return;
  bias_ = Matrix(spec.seed % 2 == 0 ? 1 : mix.experts, spec.n, spec.bias_type, spec.strides);
  for (int64_t e = 0; e < bias_.view().rows; ++e)
    for (int64_t n = 0; n < spec.n; ++n) bias_.set(e, n, 0.1 * static_cast<double>((e * 31 + n) % 17 - 8));
}

marlin_status Mixture::pack(uint32_t threads) {
  std::vector<marlin_pack_desc> descs;
  for (const auto& expert : experts_)
    for (const marlin_pack_desc& part : expert->parts()) descs.push_back(part);
  std::vector<const marlin_pack_desc*> pointers;
  for (const marlin_pack_desc& d : descs) pointers.push_back(&d);
  marlin_weights_destroy(weights_);
  context_ = trial::context(threads);
  return marlin_weights_pack(context_, pointers.data(), static_cast<uint32_t>(pointers.size()),
                             static_cast<uint32_t>(mix_.experts), &weights_, nullptr);
}

marlin_gemm_desc Mixture::desc() const {
  marlin_gemm_desc d = like_.gemm_desc();
  d.weights = weights_;
  d.bias = bias_.view();
  d.expert_ids = ids_.view();
  d.expert_scales = scales_.view();
  if (mix_.tokens == 0) d.expert_ids = {nullptr, 0, 0, mix_.top_k, 0, MARLIN_I32, MARLIN_MEM_HOST};
  d.a.rows = mix_.row_a_slot ? slots() : mix_.tokens;
  d.c.rows = sums() ? mix_.tokens : slots();
  return d;
}

testing::AssertionResult Mixture::run(marlin_stream* stream) {
  for (int64_t r = 0; r < like_.spec.m; ++r)
    for (int64_t n = 0; n < columns(); ++n)
      like_.c.set(r, n, like_.spec.accumulate ? like_.c_before[static_cast<size_t>(r * columns() + n)] : NAN);
  const marlin_gemm_desc d = desc();
  marlin_error err{};
  err.struct_size = sizeof err;
  std::optional<guarded::Stream> own;
  if (stream == nullptr && on_cpu()) stream = own.emplace(context_, d, mix_.tokens).get();
  if (marlin_gemm(stream, &d, &err) == MARLIN_OK) return testing::AssertionSuccess();
  return testing::AssertionFailure() << err.message;
}

testing::AssertionResult Mixture::check() {
  expect_slots();
  oracle::Product out = like_.product();
  for (int64_t r = 0; r < (sums() ? mix_.tokens : slots()); ++r) {
    for (int64_t n = 0; n < columns(); ++n) {
      std::vector<double> scales;
      std::vector<oracle::Element> parts;
      for (int64_t s = sums() ? r * mix_.top_k : r; s < (sums() ? (r + 1) * mix_.top_k : r + 1); ++s) {
        if (chosen_[static_cast<size_t>(s)] < 0) continue;
        scales.push_back(sums() ? scales_.get(r, s % mix_.top_k) : 1);
        parts.push_back(expected_[static_cast<size_t>(s)][static_cast<size_t>(n)]);
      }
      const auto want = oracle::weighted_sum(out, scales, parts, static_cast<size_t>(r * columns() + n));
      const double got = like_.c.get(r, n);
      if (!want.accepts(got) || (parts.empty() && !out.c.empty() && got != out.c[static_cast<size_t>(r * columns() + n)]))
        return testing::AssertionFailure() << "C[" << r << ", " << n << "] is " << got << ", expected " << want.value << " +- "
                                           << want.bound;
    }
  }
  if (!like_.c.gaps_untouched()) return testing::AssertionFailure() << "wrote between the rows of C";
  return testing::AssertionSuccess();
}

testing::AssertionResult Mixture::check_alone() {
  for (int64_t e = 0; e < mix_.experts; ++e) {
    const std::vector<int64_t> slots = slots_of(e);
    if (slots.empty()) continue;
    Case spec = like_.spec;
    spec.m = static_cast<int64_t>(slots.size());
    spec.gate_seed = spec.seed;
    spec.seed = experts_[static_cast<size_t>(e)]->spec.seed;
    Trial alone(spec);
    for (size_t i = 0; i < slots.size(); ++i)
      for (int64_t k = 0; k < spec.k; ++k) alone.a.set(static_cast<int64_t>(i), k, like_.a.get(row_of_a(slots[i]), k));
    if (const auto ok = alone.pack(); !ok) return ok;
    if (const auto ok = alone.run(); !ok) return ok;
    for (size_t i = 0; i < slots.size(); ++i)
      if (std::memcmp(alone.c.bytes(static_cast<int64_t>(i)), like_.c.bytes(slots[i]), alone.c.raw().size() / slots.size()) !=
          0)
        return testing::AssertionFailure() << "slot " << slots[i] << " is not what expert " << e << " alone gives";
  }
  return testing::AssertionSuccess();
}

int32_t Mixture::pick(int64_t slot, std::mt19937& random) const {
  const auto experts = static_cast<uint32_t>(mix_.experts);
  if (mix_.pick == Pick::last) return static_cast<int32_t>(experts - 1);
  if (mix_.pick == Pick::repeated) return static_cast<int32_t>(slot / mix_.top_k * 5 % mix_.experts);
  if (mix_.pick == Pick::ends) {
    if (slot < mix_.top_k) return slot == 0 ? 0 : static_cast<int32_t>(experts - 1);
    return static_cast<int32_t>(1 + random() % (experts - 2));
  }
  if (mix_.pick == Pick::skewed) {
    const double u = std::uniform_real_distribution<double>()(random);
    return static_cast<int32_t>(std::pow(static_cast<double>(experts) + 1, u)) - 1;
  }
  constexpr int32_t kNowhere[] = {-1, INT32_MIN, INT32_MAX};
  if (mix_.pick == Pick::outside && random() % 3 != 0)
    return random() % 2 != 0 ? kNowhere[slot % 3] : static_cast<int32_t>(experts);
  return static_cast<int32_t>(random() % experts);
}

std::vector<int64_t> Mixture::slots_of(int64_t expert) const {
  std::vector<int64_t> found;
  for (int64_t s = 0; s < slots(); ++s)
    if (chosen_[static_cast<size_t>(s)] == expert) found.push_back(s);
  return found;
}

void Mixture::expect_slots() {
  expected_.assign(static_cast<size_t>(slots()), {});
  for (int64_t e = 0; e < mix_.experts; ++e) {
    Trial& expert = *experts_[static_cast<size_t>(e)];
    const std::vector<int64_t> slots = slots_of(e);
    if (like_.spec.compute == MARLIN_COMPUTE_INT8 && expert.spec.order != trial::Order::plain && !slots.empty()) {
      ASSERT_TRUE(expert.pack());
      expert.expected.slot_group = std::stoi(expert.explained("slot_group"));
    }
    oracle::Product p = like_.product();
    p.weights = &expert.expected;
    p.m = static_cast<int64_t>(slots.size());
    p.c.clear();
    p.c_dtype = MARLIN_F32;
    std::vector<double> a;
    for (const int64_t s : slots)
      a.insert(a.end(), p.a.begin() + row_of_a(s) * p.weights->k, p.a.begin() + (row_of_a(s) + 1) * p.weights->k);
    p.a = std::move(a);
    for (int64_t n = 0; bias_.view().data != nullptr && n < p.weights->n; ++n)
      p.bias.push_back(bias_.get(bias_.view().rows == 1 ? 0 : e, n));
    const auto all = oracle::multiply(p);
    for (size_t i = 0; i < slots.size(); ++i) {
      const auto row = all.begin() + static_cast<std::ptrdiff_t>(i) * columns();
      expected_[static_cast<size_t>(slots[i])].assign(row, row + columns());
    }
  }
}

}  // namespace trial
