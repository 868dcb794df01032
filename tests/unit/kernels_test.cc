// Every kernel against a plain scalar computation, for small, ragged, strided shapes.
#include <regex>

#include "campaigns.h"
#include "kernels_problem.h"
#include "test.h"

namespace metal_marlin::cpu {
namespace {

/// Every format with all scales and zeros that it may have, in groups of all sizes.
std::vector<WeightKind> all_kinds(std::mt19937 rng) {
  std::vector<WeightKind> kinds;
  for (const FormatRow& row : format_table())
    for_each_kind(row, [&](const WeightMeta& meta) {
      for (const int group : {16, 32, 64, 128}) {
        if (row.fixed_group && group != row.default_group) continue;
        const bool has_factors = meta.zero_kind != ZeroKind::additive && rng() % 4 == 0;
        const bool act_order = !meta.sparse && rng() % 4 == 0;
        kinds.push_back(
            {row.format, meta.scale_type, meta.zero_kind, group, has_factors, act_order, meta.sparse, meta.zero_type});
      }
    });
  return kinds;
}

/// Matrices of every kind, which all kernels multiply by: to draw one takes longer than a product. They last as long as the
/// process.
class Drawn {
 public:
  const uint32_t seed = std::random_device{}();
  const std::vector<WeightKind> kinds = all_kinds(std::mt19937(seed));

  /// The matrix of this number of a kind. `size` draws its N and K.
  const TestWeights& weights(size_t kind, uint32_t number, std::pair<int64_t, int64_t> (*size)(std::mt19937& rng)) {
    const auto found = made_.find({kind, number});
    if (found != made_.end()) return found->second;
    std::mt19937 rng(seed + 1000 * number + static_cast<uint32_t>(kind));
    const auto [n, k] = size(rng);
    return made_.emplace(std::pair{kind, number}, random_weights(kinds[kind], n, k, rng)).first->second;
  }

 private:
  std::map<std::pair<size_t, uint32_t>, TestWeights> made_;
};

Drawn& drawn() {
  static Drawn all;
  return all;
}

class EveryKernel : public OnEachKernel {
 protected:
  /// Whether the kernel multiplies such weights, and how.
  Result<GemmPlan> plan(const TestWeights& w, int64_t m, marlin_dtype a_type) const {
    GemmProblem problem;
    problem.weights = w.packed.get();
    problem.a.dtype = a_type;
    problem.compute = compute_of(row);
    return plan_gemm(problem, m, {features, row.name});
  }
  /// Operands of a product, and in the trace what it is.
  Operands operands(const TestWeights& w, int64_t m, marlin_dtype a_type, marlin_dtype c_type) {
    Operands o = make_operands(w, m, a_type, c_type, rng);
    o.problem.compute = compute_of(row);
    ++served;
    product = (testing::Message() << row.name << " seed " << drawn().seed << " " << w.spec.describe() << " m " << m << " a "
                                  << a_type << " c " << c_type)
                  .GetString();
    return o;
  }

  std::mt19937 rng{drawn().seed};
  int served = 0;
  std::string product;
};

TEST_P(EveryKernel, AgreesWithScalarSums) {
  const auto from = [&](int64_t least, uint32_t count) { return least + static_cast<int64_t>(rng() % count); };
  const auto size = [](std::mt19937& random) {
    const int64_t n = 1 + random() % 150;
    return std::pair{n, static_cast<int64_t>(random() % 3 == 0 ? 1 + random() % 40 : 1 + random() % 500)};
  };
  for (size_t kind = 0; kind < drawn().kinds.size(); ++kind) {
    const int64_t some[] = {from(2, 3), from(5, 12), from(17, 20)};
    uint32_t number = 0;
    for (const int64_t m : {int64_t{1}, some[rng() % 3], from(61, 12)}) {
      if (is_emulated() && served > 0 && rng() % 3 != 0) continue;
      if (m > 60 && !whole_campaigns() && rng() % 2 != 0) continue;  // most of the sums
      if (m > 60 && !row.cut_last) continue;  // only register-decoded tiles read codes in another way from 6 tiles on
      const TestWeights& w = drawn().weights(kind, number++, size);
      const marlin_dtype dtypes[] = {MARLIN_F32, MARLIN_F16, MARLIN_BF16};
      const marlin_dtype a_type = row.bf16_only ? MARLIN_BF16 : dtypes[rng() % 3];
      if (!plan(w, m, a_type).ok()) continue;
      const Operands o = operands(w, m, a_type, dtypes[rng() % 3]);
      SCOPED_TRACE(product);
      run(o.problem, features, row.name, 1 + rng() % 3);
      if (HasFatalFailure()) return;
      ASSERT_TRUE(check(o, w));
    }
  }
  EXPECT_GT(served, 0) << "no weights that this kernel serves";
}

/// Few columns and a long K: the product is cut along K.
TEST_P(EveryKernel, AgreesInPartsOfK) {
  const auto size = [](std::mt19937& random) {
    const int64_t n = 1 + random() % 4;
    return std::pair{n, static_cast<int64_t>(2 * 6 * kSuperSlots + random() % 300)};
  };
  for (size_t kind = 0; kind < drawn().kinds.size(); ++kind) {
    if (is_emulated() && served > 0 && rng() % 3 != 0) continue;
    const int64_t m = 1 + rng() % std::min(row.tile_rows, 2);
    const TestWeights& w = drawn().weights(kind, 9, size);
    const marlin_dtype a_type = row.bf16_only ? MARLIN_BF16 : MARLIN_F32;
    const auto planned = plan(w, m, a_type);
    if (!planned.ok()) continue;
    const Operands o = operands(w, m, a_type, MARLIN_F32);
    SCOPED_TRACE(product);
    ASSERT_GT(planned.value().k_parts, 1);
    run(o.problem, features, row.name, 1);
    ASSERT_TRUE(check(o, w));
    const std::vector<float> once = results(o.problem);
    for (const uint32_t width : {2u, 3u, 16u}) {
      run(o.problem, features, row.name, width);
      ASSERT_EQ(results(o.problem), once) << width << " threads";
    }
  }
  EXPECT_GT(served, 0);
}

INSTANTIATE_TEST_SUITE_P(Kernels, EveryKernel, testing::ValuesIn(rows_that(every_row)), name_of_row);

/// However many rows are prepared at a time, and whatever they hold. (Float sums may differ in their order, so there are none.)
TEST(PreparedActivations, AreThePortableOnes) {
  std::mt19937 rng(3);
  const CpuFeatures features = this_machine();
  const float odd[] = {0.0f, -0.0f, 1e-45f, 3e38f, -3e38f, std::numeric_limits<float>::infinity(), std::nanf("")};
  const ActivationLayout forms[] = {{.form = ActivationForm::int8, .sums_per_block = 1, .sum_factor = -12},
                                    {.form = ActivationForm::int8, .sums_per_block = 2, .sum_factor = 3},
                                    {.form = ActivationForm::bf16},
                                    {.form = ActivationForm::bf16x3},
                                    {.form = ActivationForm::f32}};
  for (int trial = 0; trial < 400; ++trial) {
    const int64_t rows = 1 + rng() % 18, k = 200 + rng() % 56, stride = k + rng() % 3;
    std::vector<float> a(static_cast<size_t>(rows * stride));
    for (float& x : a) {
      x = std::ldexp(static_cast<float>(static_cast<int>(rng() % 65536) - 32768), static_cast<int>(rng() % 40) - 20);
      if (rng() % 300 == 0) x = odd[rng() % std::size(odd)];
    }
    if (trial % 3 == 0) std::fill_n(a.begin() + static_cast<int64_t>(rng() % rows) * stride, 70, 0.0f);
    ActivationLayout layout = forms[rng() % std::size(forms)];
    // BF16 records are made of values that are BF16 already.
    if (layout.form == ActivationForm::bf16)
      for (float& x : a) x = std::bit_cast<float>(std::bit_cast<uint32_t>(x) & 0xffff0000u);
    layout.tile_rows = static_cast<int>(1 + rng() % 16);
    layout.cut_last = rng() % 2 == 0 && layout.tile_rows % 2 == 0;
    const bool is_for_amx = layout.form == ActivationForm::bf16x3;    // and for no other kernel
    if (const auto order = is_for_amx ? 1 : rng() % 4; order == 0) {  // as kernels of 2:4 sparse weights take them
      layout.gathered = true;
      layout.run = layout.form == ActivationForm::f32 ? 4 : 2;
    } else if (order == 1 && layout.form != ActivationForm::f32) {  // as AMX takes them
      layout.run = std::min(layout.steps(), 16);
    }
    layout.chunk_blocks = 4;
    layout.rows = rows;
    layout.tiles = (rows + layout.tile_rows - 1) / layout.tile_rows;
    layout.blocks = 8;
    const MatrixView view{a.data(), rows, k, stride, MARLIN_F32};
    std::vector<uint32_t> portable(layout.bytes() / 4), other(portable.size());
    PrepareArgs args;
    args.a = &view;
    args.rows = rows;
    args.layout = layout;
    args.out = portable.data();
    prepare_activations(args, 0, layout.tiles);
    args.out = other.data();
    for (const KernelRow& row : kernel_rows()) {
      if (!features.has(row.features)) continue;
      row.steps.prepare(args, 0, layout.tiles);
      ASSERT_EQ(portable, other) << row.name << ", trial " << trial << ": " << rows << " rows, " << layout.tile_rows
                                 << " a tile";
    }
  }
}

/// Rows that hold NaN or infinity, wherever a gathered layout's preparation finds them, and no others.
TEST(PreparedActivations, OfGatheredFloatsMarkRowsThatAreNotFinite) {
  constexpr int64_t kRows = 5, kK = 250;
  const CpuFeatures features = this_machine();
  std::vector<int32_t> backwards(256, -1);
  for (int64_t k = 0; k < kK; ++k) backwards[static_cast<size_t>(k)] = static_cast<int32_t>(kK - 1 - k);
  const int32_t rows_of_a[] = {4, 0, 3, 1, 2};
  const auto marks = [&](auto prepare, const PrepareArgs& args) {
    prepare(args, 0, args.layout.tiles);
    std::vector<bool> marked;
    for (int64_t row = 0; row < kRows; ++row) {
      const int tile_rows = args.layout.tile_rows;
      const uint32_t fact = args.out[args.layout.rows_offset(row / tile_rows) + row % tile_rows];
      EXPECT_TRUE(fact == 0 || std::isnan(std::bit_cast<float>(fact)));
      marked.push_back(fact != 0);
    }
    return marked;
  };
  for (const ActivationForm form : {ActivationForm::bf16, ActivationForm::f32})
    for (const float not_finite :
         {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(), std::nanf("")})
      for (const int64_t at : {int64_t{0}, int64_t{31}, int64_t{32}, kK - 1})
        for (const bool gather : {false, true}) {
          std::vector<float> a(kRows * kK, 1.0f);
          a[static_cast<size_t>(kK + at)] = a[static_cast<size_t>(4 * kK + at)] = not_finite;  // rows 1 and 4 of A
          const MatrixView view{a.data(), kRows, kK, kK, MARLIN_F32};
          PrepareArgs args;
          args.a = &view;
          args.rows = kRows;
          args.layout = {.form = form, .tile_rows = 2, .chunk_blocks = 8, .rows = kRows, .tiles = 3, .blocks = 8};
          args.layout.gathered = true;
          args.layout.run = form == ActivationForm::f32 ? 4 : 2;
          if (gather) {
            args.rows_of_a = rows_of_a;
            args.slot_to_k = backwards.data();
          }
          std::vector<uint32_t> records(args.layout.bytes() / 4);
          args.out = records.data();
          const std::vector<bool> expected =
              gather ? std::vector<bool>{true, false, false, true, false} : std::vector<bool>{false, true, false, false, true};
          EXPECT_EQ(marks(prepare_activations, args), expected);
          for (const KernelRow& row : kernel_rows()) {
            if (!features.has(row.features)) continue;
            EXPECT_EQ(marks(row.steps.prepare, args), expected) << row.name;
          }
        }
}

/// d of a block next to the smallest float is rounded to few bits, so that x / d may be as much as 190.
TEST(Int8Activations, NeverPass127) {
  std::mt19937 rng(2);
  const CpuFeatures features = this_machine();
  for (int exponent = -149; exponent < -110; ++exponent) {
    std::vector<float> a(3 * 64);
    for (float& x : a) x = std::ldexp(static_cast<float>(static_cast<int>(rng() % 255) - 127), exponent);
    a[5] = std::ldexp(190.0f, exponent);
    a[6] = -a[5];
    const MatrixView view{a.data(), 3, 64, 64, MARLIN_F32};
    PrepareArgs args;
    args.a = &view;
    args.rows = 3;
    args.layout = {.form = ActivationForm::int8,
                   .tile_rows = 3,
                   .chunk_blocks = 4,
                   .sums_per_block = 1,
                   .rows = 3,
                   .tiles = 1,
                   .blocks = 4};
    std::vector<uint32_t> portable(args.layout.bytes() / 4), other(portable.size());
    args.out = portable.data();
    prepare_activations(args, 0, 1);
    const auto* bytes = reinterpret_cast<const int8_t*>(portable.data());
    EXPECT_EQ(bytes[3 * 4 + 1], 127) << exponent;
    EXPECT_EQ(bytes[3 * 4 + 2], -127) << exponent;
    args.out = other.data();
    for (const KernelRow& row : kernel_rows()) {
      if (!features.has(row.features)) continue;
      row.steps.prepare(args, 0, 1);
      EXPECT_EQ(portable, other) << exponent << " " << row.name;
    }
  }
}

/// Rows in fours, alone and past the end; blocks of zeros, of NaN and of an infinity; scales over the whole range of floats.
/// The range of d that follows the blocks is part of what is compared.
TEST(Int8Activations, HaveTheSameBytesInVectors) {
  constexpr int64_t kRows = 14, kK = 250;
  std::mt19937 rng(4);
  std::vector<float> a(kRows * kK);
  for (size_t i = 0; i < a.size(); ++i)
    a[i] = std::ldexp(static_cast<float>(static_cast<int>(rng() % 255) - 127), static_cast<int>(i / 32 * 37 % 200) - 120);
  std::fill_n(a.begin() + 2 * kK, 64, 0.0f);
  a[5 * kK + 40] = std::nanf("");
  a[6 * kK + 3] = -std::numeric_limits<float>::infinity();
  const MatrixView view{a.data(), kRows, kK, kK, MARLIN_F32};
  PrepareArgs args;
  args.a = &view;
  args.rows = kRows;
  for (const int sums : {0, 1, 2}) {
    args.layout = {.form = ActivationForm::int8,
                   .tile_rows = 8,
                   .chunk_blocks = 4,
                   .sums_per_block = sums,
                   .rows = kRows,
                   .tiles = 2,
                   .blocks = 8};
    std::vector<uint32_t> portable(args.layout.bytes() / 4), other(portable.size());
    args.out = portable.data();
    prepare_activations(args, 0, 2);
    args.out = other.data();
    for (const KernelRow& row : kernel_rows()) {
      if (!this_machine().has(row.features)) continue;
      std::fill(other.begin(), other.end(), 0u);
      row.steps.prepare(args, 0, 2);
      EXPECT_EQ(portable, other) << sums << " " << row.name;
    }
  }
}

TEST(KernelNames, FollowTheGrammarAndAreUnique) {
  const std::regex grammar(
      "cpu_(generic|avx2|avx512|avx512vnni|avx512bf16|amx|neon|neondotprod|neoni8mm|neonbf16)_"
      "(gemv|regdecode|dequant|prescaled)_(u4|u4zero|u4add|fp4|i8|i8add|real|any)(_sparse)?_(i8|bf16|f32)");
  std::vector<std::string> names;
  for (const KernelRow& row : kernel_rows()) {
    names.emplace_back(row.name);
    EXPECT_TRUE(std::regex_match(names.back(), grammar)) << names.back();
  }
  std::sort(names.begin(), names.end());
  EXPECT_EQ(std::adjacent_find(names.begin(), names.end()), names.end());
}

}  // namespace
}  // namespace metal_marlin::cpu
