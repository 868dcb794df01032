// Every kind of codes through every product kernel, on ragged shapes and strides, with all that a product can ask for.
#include <algorithm>
#include <map>

#include "campaigns.h"
#include "planted.h"

namespace shaders {
namespace {

using Engine = std::mt19937;
template <class T, size_t N>
T pick(Engine& random, const T (&from)[N]) {
  return from[random() % N];
}

/// What the test does not enumerate, drawn by seed: types, groups, order, epilogue, strides. Each third product has splits, or
/// more simdgroups.
problem::Case draw(const Kind& kind, const KernelRow& row, uint32_t seed) {
  Engine random(seed);
  const int64_t m_max = row.m_max == 0 ? row.rows + 5 : row.m_max;
  problem::Case s = case_of(kind, row.m_min + static_cast<int64_t>(random() % static_cast<uint32_t>(m_max - row.m_min + 1)),
                            1 + random() % 75, 4 + random() % 500);
  s.seed = seed;
  if (seed % 4 == 0) s.range = problem::Range::wide;
  s.suffix = row.suffix;
  if (random() % 4 == 0) s.m += row.rows;  // further threadgroups along y, as whoever probes a kernel asks for
  const bool two_level = metal_marlin::is_two_level(kind.scale_type);
  const bool fixed_group =
      kind.format == MARLIN_FORMAT_MXFP4 || kind.format == MARLIN_FORMAT_NVFP4 || two_level || is_float(kind);
  constexpr ScaleType kFloats[] = {ScaleType::f32, ScaleType::f16, ScaleType::bf16};
  if (!fixed_group) {
    constexpr int64_t kGroups[] = {0, 16, 32, 64, 128, 256};
    s.group = pick(random, kGroups);
    if (random() % 2 == 0) s.scale_type = pick(random, kFloats);
  }
  if (const ScaleType drawn = pick(random, kFloats); !two_level) s.zero_type = drawn;
  if (!s.sparse && s.group != 0 && !two_level) {
    constexpr Order kOrders[] = {Order::plain, Order::plain, Order::plain, Order::shuffled, Order::shard, Order::offset};
    s.order = pick(random, kOrders);
  }
  const bool factors =
      kind.zeros != ZeroKind::additive && (kind.format == MARLIN_FORMAT_FP8 || !oracle::takes_float_activations(kind.format));
  constexpr Tensor kTensors[] = {Tensor::none, Tensor::two_parts, Tensor::two_divide};
  if (factors) s.tensor = pick(random, kTensors);
  constexpr marlin_dtype kTypes[] = {MARLIN_F32, MARLIN_F16, MARLIN_BF16};
  s.a_type = pick(random, kTypes);
  s.c_type = pick(random, kTypes);
  if (random() % 3 == 0) s.compute = MARLIN_COMPUTE_INT8;
  if (oracle::takes_float_activations(kind.format)) s.compute = MARLIN_COMPUTE_DEFAULT;
  if (row.nax() && s.group == 16 && kind.format != MARLIN_FORMAT_NVFP4) s.group = 32;
  if (row.nax() && s.order != Order::shuffled) s.order = Order::plain;  // others may make groups of 16
  if (row.tensor()) {
    if (s.a_type == MARLIN_F32) s.a_type = MARLIN_F16;
    s.compute = MARLIN_COMPUTE_DEFAULT;
  }
  constexpr int64_t kActivationGroups[] = {0, 64, 128, 1 << 20};
  if (s.compute == MARLIN_COMPUTE_INT8) s.activation_group = kActivationGroups[seed / 3 % std::size(kActivationGroups)];
  if (random() % 2 == 0) s.bias_type = pick(random, kTypes);
  if (random() % 2 == 0) s.epilogue = static_cast<marlin_epilogue>(random() % 8);
  if (s.epilogue >= MARLIN_EPILOGUE_SWIGLU) {
    s.n += s.n % 2;
    s.interleaved = random() % 2 == 0;
  }
  s.accumulate = random() % 3 == 0;
  if (random() % 2 == 0) s.strides = Strides::odd;
  if (seed % 3 == 0) s.splits = 2 + seed / 3 % 2;
  return s;
}

/// A family of kernels and a class of M.
std::string class_of(const KernelRow& row) {
  return row.nax() ? "nax" : row.tensor() ? "tensor" : row.shares_a() ? "shared" : row.rows == 1 ? "one row" : row.family;
}

/// The rows of kernels for a kind: all in the long form. The short one has for each class a row that differs from kind to kind,
/// unless the product of a planted mistake is of that class.
std::vector<size_t> rows_for(size_t kind) {
  std::map<std::string, std::vector<size_t>> classes;
  for (size_t row = 0; row < kernel_rows().size(); ++row)
    if (kernel_rows()[row].nax() ? is_in_fragments(kKinds[kind]) : !kernel_rows()[row].tensor() || !is_real(kKinds[kind]))
      classes[class_of(kernel_rows()[row])].push_back(row);
  for (const Mutation& mutation : planted_mistakes())
    if (mutation.kind.name == std::string(kKinds[kind].name) && mutation.what != Mutation::unpack && !whole_campaigns())
      classes.erase(class_of(kernel_row(problem_of(mutation).spec)));
  std::vector<size_t> rows;
  for (const auto& [name, all] : classes)
    if (whole_campaigns())
      rows.insert(rows.end(), all.begin(), all.end());
    else
      rows.push_back(all[kind % all.size()]);
  return rows;
}

class Products : public testing::TestWithParam<Kind> {};

TEST_P(Products, AreWithinTheBoundOfEveryElement) {
  const size_t kind = number_of(GetParam());
  for (const size_t row : rows_for(kind)) {
    const auto seed = static_cast<uint32_t>(100000 * (kind + 1) + row + 1);
    Setting setting;
    setting.seed = seed % 2 == 0 ? seed : 0;
    EXPECT_TRUE(holds(draw(GetParam(), kernel_rows()[row], seed), setting));
  }
}

/// Activations next to an end of float32's range, with scales of the other kind: products are ordinary numbers, while sums of
/// activations and codes would overflow, or be flushed.
struct End {
  const char* name;
  double activation, scale;
  uint8_t e8m0, e4m3;
  uint8_t fp4, int4, int8;  // codes of large, or of the smallest, numbers
  bool quantizes;           // INT8 activations too: their scale is a normal number
};
constexpr End kEnds[] = {{"largest", 0x1.8p121, 0x1p-12, 107, 1, 7, 15, 127, true},
                         {"smallest", 0x1.8p-126, 0x1p15, 227, 0x78, 1, 9, 1, false}};

Problem at_end(const End& end, const Kind& kind, const char* suffix, marlin_dtype a_type, bool int8) {
  problem::Case s = case_of(kind, 2, 40, 160);
  s.suffix = suffix;
  s.a_type = a_type;
  s.compute = int8 ? MARLIN_COMPUTE_INT8 : MARLIN_COMPUTE_DEFAULT;
  Problem problem(s);
  auto& weights = problem.source.all();
  const auto& meta = problem.source.meta();
  for (int64_t i = 0; i < meta.n * meta.groups; ++i)
    problem.set_scale(i, end.scale, meta.scale_type == ScaleType::e4m3 ? end.e4m3 : i % meta.groups == 0 ? 0 : end.e8m0);
  std::fill(weights.codes.begin(), weights.codes.end(),
            kind.format == MARLIN_FORMAT_INT8   ? end.int8
            : kind.format == MARLIN_FORMAT_INT4 ? end.int4
                                                : end.fp4);
  std::fill(weights.zeros.begin(), weights.zeros.end(), uint8_t{0});
  std::fill(problem.a.begin(), problem.a.end(), end.activation);
  return problem;
}

class Ends : public testing::TestWithParam<Kind> {};

TEST_P(Ends, OfFloat32Hold) {
  struct {
    const char* suffix;
    marlin_dtype a_type;
    bool int8;
  } constexpr kCases[] = {
      {"m1", MARLIN_F32, false}, {"m1", MARLIN_BF16, false}, {"m1", MARLIN_F32, true}, {"m16_n32_direct", MARLIN_F32, false}};
  for (const End& end : kEnds)
    for (const auto& c : kCases) {
      if (c.int8 && !end.quantizes) continue;
      Problem problem = at_end(end, GetParam(), c.suffix, c.a_type, c.int8);
      ASSERT_TRUE(problem.pack());
      ASSERT_TRUE(problem.run());
      EXPECT_TRUE(problem.check()) << end.name << ": " << problem.spec.describe();
    }
}

const auto name_of = [](const testing::TestParamInfo<Kind>& i) { return std::string(i.param.name); };
INSTANTIATE_TEST_SUITE_P(Kinds, Ends, testing::ValuesIn(kKinds, kKinds + 8), name_of);
INSTANTIATE_TEST_SUITE_P(Kinds, Products, testing::ValuesIn(kKinds), name_of);

}  // namespace
}  // namespace shaders
