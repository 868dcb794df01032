// A mixture of experts through the C ABI, checked element by element against the oracle.
#pragma once

#include "metal_marlin/metal_marlin.h"
#include "special_values.h"
#include "test.h"
#include "trial.h"

namespace trial {

enum class Pick : uint8_t {
  random,
  last,      ///< all the last one
  repeated,  ///< a token's all the same
  outside,   ///< some are none
  ends,      ///< only the first token has the first and the last
  skewed     ///< by Zipf's law
};

struct Mix {
  int64_t tokens, experts, top_k;
  Pick pick;
  bool row_a_slot;           ///< A has a row for every slot, as the down projection does
  marlin_dtype scales_type;  ///< 0: no sum
  /// The first expert has the order of the file, the last one groups of unequal lengths, others any order.
  bool orders_differ = false;
};

/// One or many rows an expert, with and without sums.
inline constexpr Mix kMixes[] = {
    {1, 1, 1, Pick::random, false, 0},           {1, 5, 4, Pick::random, false, 0},
    {1, 128, 4, Pick::random, true, MARLIN_F32}, {2, 8, 8, Pick::repeated, false, 0},
    {5, 7, 2, Pick::outside, false, 0},          {5, 3, 4, Pick::outside, true, MARLIN_BF16},
    {64, 128, 4, Pick::random, false, 0},        {64, 4, 3, Pick::random, true, MARLIN_F16},
    {257, 6, 1, Pick::last, false, MARLIN_F32},  {257, 3, 2, Pick::random, false, 0},
    {1, 4, 2, Pick::outside, false, MARLIN_F32}, {0, 3, 2, Pick::random, false, 0},
};

/// Sets the seed, and by it types, strides, bias and whether the product accumulates.
void vary(Case& c, uint32_t seed);

/// Experts of one shape, what they multiply, and what must come out.
class Mixture {
 public:
  /// `ids` of all slots, if there are any, take the place of what the mix picks.
  Mixture(const Case& spec, const Mix& mix, std::span<const int32_t> ids = {});
  ~Mixture() { marlin_weights_destroy(weights_); }
  Mixture(const Mixture&) = delete;

  marlin_status pack(uint32_t threads);

  /// NaN, infinity, -0 and subnormals in the first rows of A.
  void put_special_values() { trial::put_special_activations(like_); }

  marlin_gemm_desc desc() const;

  /// Without a stream: on one with guarded scratch, where the host has scratch.
  testing::AssertionResult run(marlin_stream* stream = nullptr);

  /// Every element of C against the oracle.
  testing::AssertionResult check();

  /// Slots of experts that have one row or many: the bits of a product of the expert alone, over the same rows.
  testing::AssertionResult check_alone();

  std::vector<uint8_t> result() const { return like_.c.raw(); }

 private:
  static Case with_rows(Case spec, const Mix& mix) {
    spec.m = std::max<int64_t>(1, mix.tokens * mix.top_k);
    spec.bias_type = 0;
    return spec;
  }
  int64_t slots() const { return mix_.tokens * mix_.top_k; }
  int64_t columns() const { return like_.spec.columns(); }
  bool sums() const { return mix_.scales_type != 0; }
  int64_t row_of_a(int64_t slot) const { return mix_.row_a_slot ? slot : slot / mix_.top_k; }

  int32_t pick(int64_t slot, std::mt19937& random) const;

  std::vector<int64_t> slots_of(int64_t expert) const;

  /// Each slot's row of float32, before it is scaled.
  void expect_slots();

  const Mix mix_;
  Trial like_;  ///< its A and C are those of the product
  std::vector<std::unique_ptr<Trial>> experts_;
  Matrix ids_, scales_, bias_;
  std::vector<int64_t> chosen_;  ///< a slot's expert, or -1
  std::vector<std::vector<oracle::Element>> expected_;
  marlin_weights* weights_ = nullptr;
  marlin_context* context_ = nullptr;
};

}  // namespace trial
