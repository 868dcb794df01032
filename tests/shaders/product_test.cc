// Every kind of codes through every product kernel, on ragged shapes and strides, with all that a product can ask for.
#include <cstdlib>

#include "kinds.h"

namespace shaders {
namespace {

using Engine = std::mt19937;
template <class T, size_t N>
T pick(Engine& random, const T (&from)[N]) {
  return from[random() % N];
}

/// What the test does not enumerate, drawn by seed: types, groups, order, epilogue, strides, splits. METAL_MARLIN_SHADER_ROUNDS
/// (default 1) asks for more draws.
Spec draw(const Kind& kind, const KernelRow& row, uint32_t seed) {
  Engine random(seed);
  const int64_t m_max = row.m_max == 0 ? row.rows + 5 : row.m_max;
  Spec s = spec_of(kind, row.m_min + static_cast<int64_t>(random() % static_cast<uint32_t>(m_max - row.m_min + 1)),
                   1 + random() % 75, 4 + random() % 500);
  s.seed = seed;
  s.suffix = row.suffix;
  if (random() % 4 == 0) s.m += row.rows;  // further threadgroups along y, as whoever probes a kernel asks for
  const bool fixed_group = kind.format == MARLIN_MXFP4 || kind.format == MARLIN_NVFP4;
  constexpr ScaleType kFloats[] = {ScaleType::f32, ScaleType::f16, ScaleType::bf16};
  if (!fixed_group) {
    constexpr int64_t kGroups[] = {0, 16, 32, 64, 128, 256};
    s.group = pick(random, kGroups);
    if (random() % 2 == 0) s.scale_type = pick(random, kFloats);
  }
  s.zero_type = pick(random, kFloats);
  if (!s.sparse && s.group != 0) {
    constexpr Order kOrders[] = {Order::plain, Order::plain, Order::plain, Order::shuffled, Order::shard, Order::offset};
    s.order = pick(random, kOrders);
  }
  if (kind.zeros != ZeroKind::additive) s.tensor = static_cast<int>(random() % 3);
  constexpr marlin_dtype kTypes[] = {MARLIN_F32, MARLIN_F16, MARLIN_BF16};
  s.a_type = pick(random, kTypes);
  s.c_type = pick(random, kTypes);
  s.int8 = random() % 3 == 0;
  if (random() % 2 == 0) s.bias_type = pick(random, kTypes);
  if (random() % 2 == 0) s.epilogue = static_cast<marlin_epilogue>(random() % 7);
  if (s.epilogue >= MARLIN_EPILOGUE_SWIGLU) {
    s.n += s.n % 2;
    s.interleaved = random() % 2 == 0;
  }
  s.accumulate = random() % 3 == 0;
  s.odd_strides = random() % 2 == 0;
  if (random() % 3 == 0) s.splits = 1 + random() % 3;
  return s;
}

class Products : public testing::TestWithParam<Kind> {};

TEST_P(Products, AreWithinTheBoundOfEveryElement) {
  const char* more = std::getenv("METAL_MARLIN_SHADER_ROUNDS");
  const int rounds = more != nullptr ? std::atoi(more) : 1;
  for (int round = 0; round < rounds; ++round) {
    uint32_t seed = static_cast<uint32_t>(1000 * round + 100000 * (&GetParam() - kKinds + 1));
    for (const KernelRow& row : kernel_rows()) {
      Setting setting;
      setting.seed = ++seed % 2 == 0 ? seed : 0;
      EXPECT_TRUE(holds(draw(GetParam(), row, seed), setting));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, Products, testing::ValuesIn(kKinds), [](const auto& i) { return std::string(i.param.name); });

}  // namespace
}  // namespace shaders
