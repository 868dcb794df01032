// Mistakes to plant in the shaders or in the packer, and the product that must notice each.
#pragma once

#include <span>
#include <string>

#include "kinds.h"

namespace shaders {

struct Mutation {
  const char *name, *file, *from, *to;
  Kind kind;
  int64_t m;
  enum What : uint8_t {
    product,
    int8,
    splits,
    nax,
    gated,
    gelu,
    gathered,
    unpack,
    group64,
    low_scales,
    nan_scale,
    nan_code,
    tensor,
    large_scales,
    silu_far_below,
    gelu_far_below,
    silu_below
  } what = product;

  /// The same for all mistakes that the same product notices.
  std::string question() const;
  bool far_below() const { return what == silu_far_below || what == gelu_far_below; }
  bool of_packer() const { return std::string(file).starts_with("src/"); }
};
inline void PrintTo(const Mutation& m, std::ostream* out) { *out << m.name; }
std::span<const Mutation> planted_mistakes();

/// The product that must notice the mistake.
Problem problem_of(const Mutation& mutation);
/// Whether it holds under the setting. Far below zero the sign of zero counts, too.
testing::AssertionResult is_right(const Mutation& mutation, Problem& problem, const Setting& setting = {});

}  // namespace shaders
