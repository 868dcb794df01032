// Products through the C ABI on an NVIDIA GPU, over a covering array of everything a caller can choose and of the kernel that
// does the work; each element against its own float64 bound. Without a device all of it is skipped, and says why.
#include "products.h"
#include "cases_of_forms.h"
#include "kernels/formats_under_test.h"
#include "kernels/gpu_kernel_name.h"
#include "kernels/mixture.h"
#include "kernels/product_factors.h"
#include "kernels/slice.h"
#include "kernels/special_values.h"
#include "test.h"

namespace {

using namespace cuda_test;
using covering::Row;
using trial::ScaleType, trial::ZeroKind;

constexpr uint32_t kArraySeed = 20240601;

const std::vector<Row>& three_way() {
  static const std::vector<Row> rows = [] {
    std::vector<int> levels = trial::factor_levels();
    levels.push_back(static_cast<int>(mm::cuda::policy().kernels.size()));
    return covering::three_way(levels, trial::allowed, kArraySeed);
  }();
  return rows;
}

/// Empty for a kernel that serves some weights only, so that the backend chooses.
std::string name_or_choice(const mm::gpu::ProductKernel& kernel, const trial::Case& c) {
  return kernel.serves != nullptr || kernel.rounds ? "" : trial::kernel_name(kernel, c);
}

/// Every three choices, and every fourth time NaN, infinity, -0 and subnormals in A and the scales.
TEST_F(Products, StayWithinTheirBounds) {
  const char* const most = std::getenv("METAL_MARLIN_PRODUCTS");
  const size_t count = most != nullptr ? static_cast<size_t>(std::atoi(most)) : three_way().size();
  double nearest = 0;
  int products = 0, failed = 0;
  for (uint32_t i = 0; i < std::min(count, three_way().size()); ++i) {
    const Row& row = three_way()[i];
    const trial::Case c = trial::case_of(row, i + 1);
    const auto& kernel = mm::cuda::policy().kernels[static_cast<size_t>(row[trial::kFactors])];
    const std::string name = i % 5 == 0 ? "" : name_or_choice(kernel, c);
    constexpr int64_t kBlocks[] = {mm::gpu::kMostRows, 1, 24};  // of rows: one, of a tile each, or a few
    trial::use_context(gpu_->context(name, kBlocks[i % std::size(kBlocks)]));
    trial::Trial t(c);
    if (i % 4 == 0) {
      trial::put_special_scales(t);
      trial::put_special_activations(t);
    }
    const auto packed = t.pack(), ran = packed ? t.run() : packed, right = ran ? t.check() : ran;
    EXPECT_TRUE(right) << c.describe() << " by " << name << (i % 4 == 0 ? ", special values" : "");
    const auto unpacked = packed ? t.check_unpack() : packed;
    EXPECT_TRUE(unpacked) << c.describe();
    nearest = std::max(nearest, t.worst);
    ++products;
    if ((!right || !unpacked) && ++failed == 20) FAIL() << "too many";
  }
  std::printf("%d products, nearest %.3f of its bound\n", products, nearest);
}

/// Whether a kernel takes activations of a byte: INT8 with scales of 128 slots and more, or E4M3.
bool multiplies_bytes(const mm::gpu::ProductKernel& kernel) {
  using mm::gpu::ActivationKind, mm::gpu::KernelCodes;
  return kernel.compiled_for(KernelCodes::u4, ActivationKind::i8) ||
         kernel.compiled_for(KernelCodes::e4m3, ActivationKind::e4m3);
}

/// Calls `try_one(number of the case, case, name of a kernel for Hopper)` for `count` cases of each such kernel. It says
/// whether the product was right, or nothing if the kernel does not serve the case. Each kernel serves some. Prints how often
/// it was right.
template <class Try>
void for_each_form(uint32_t count, const Try& try_one) {
  std::map<std::string, int> failed, ran;
  for (const auto& kernel : mm::cuda::policy().kernels) {
    if (kernel.serves == nullptr) continue;
    for (uint32_t number = 0; number < 2 * count; ++number) {
      const uint32_t i = number % count;
      trial::Case c = number < count ? case_of_form(i) : sparse_case_of_form(i);
      if (kernel.rounds) c.compute = MARLIN_COMPUTE_W16;
      if (multiplies_bytes(kernel)) {
        c.compute = c.format == MARLIN_FORMAT_FP8 ? MARLIN_COMPUTE_FP8 : MARLIN_COMPUTE_INT8;
        if (c.format != MARLIN_FORMAT_FP8) c.activation_group = i % 2 == 0 ? 128 : c.k;
      }
      const std::string name = trial::kernel_name(kernel, c);
      if (name.empty()) continue;  // 2:4 weights have no tiles
      const std::optional<testing::AssertionResult> right = try_one(i, c, name);
      ran[name] += right.has_value();
      if (right && !*right && ++failed[name] <= 3) ADD_FAILURE() << right->message() << c.describe() << " by " << name;
    }
  }
  const bool all = count >= 60;
  for (const auto& [name, number] : ran) {
    std::printf("%s: %d products, %d wrong\n", name.c_str(), number, failed[name]);
    // Bytes have no tiles of 16 rows, and the most rows have no room for some.
    // Experts are not expanded, and tiles do not serve their activations of a byte.
    const bool none = name.find("_m16_") != name.npos || name.find("_m192_") != name.npos || name.find("_m256_") != name.npos ||
                      name.starts_with("expand_") || name.find("_i8_m") != name.npos || name.find("_e4m3_m") != name.npos;
    EXPECT_TRUE(number > 0 || none || !all) << name;
  }
}
uint32_t cases_of_forms(uint32_t count) {
  const char* const most = std::getenv("METAL_MARLIN_PRODUCTS");
  return most != nullptr ? static_cast<uint32_t>(std::atoi(most)) : count;
}

/// Special float32 scales that tiles of wgmma serve: powers of two, whose low bits are 0, the smallest one, and zeros.
void put_steady_scales(trial::Trial& t) {
  const int64_t groups = t.source.meta().groups;
  const auto put = [&](int64_t row, int64_t group, double x) { t.set_scale(row % t.spec.n * groups + group, x, 0); };
  put(1, groups - 1, 0.5);
  put(3, 0, -1.0);
  put(4, groups - 1, -0.0);
  put(5, 0, 0.0);
  put(6, groups - 1, 0x1p-24);
}

/// Each kernel for Hopper over weights that it serves, also with NaN, infinity, -0 and subnormals.
TEST_F(Products, OfFormsForHopperAreRight) {
  double nearest = 0;
  using Right = std::optional<testing::AssertionResult>;
  for_each_form(cases_of_forms(300), [&](uint32_t i, const trial::Case& c, const std::string& name) -> Right {
    trial::use_context(gpu_->context(name, mm::gpu::kMostRows));
    trial::Trial t(c);
    if (c.scale_type == ScaleType::f32 && (name.starts_with("wgmma") || name.starts_with("mma_w16")))
      put_steady_scales(t);
    else if (i % 4 == 0)
      trial::put_special_scales(t);
    if (i % 4 == 0) trial::put_special_activations(t);
    const auto packed = t.pack();
    if (packed && !is_served(t.gemm_desc())) return {};
    const auto ran = packed ? t.run() : packed;
    const testing::AssertionResult right = ran ? t.check() : ran;
    nearest = std::max(nearest, t.worst);
    return right;
  });
  std::printf("nearest %.3f of its bound\n", nearest);
}

/// The same kernels over mixtures of experts, in blocks of all tokens or of a few.
TEST_F(Products, OfExpertsOfFormsForHopperAreRight) {
  using Right = std::optional<testing::AssertionResult>;
  for_each_form(cases_of_forms(60), [&](uint32_t i, trial::Case c, const std::string& name) -> Right {
    c.n = std::min<int64_t>(c.n, 256);
    c.k = std::min<int64_t>(c.k, 1024);
    c.together = false;
    trial::use_context(gpu_->context(name, i % 5 == 0 ? 24 : mm::gpu::kMostRows));
    // Each turn of the mixes begins one later: by i alone, no case of FP4 and bfloat16 had ids outside and no weighted sum.
    constexpr size_t kMixCount = std::size(trial::kMixes);
    trial::Mixture m(c, trial::kMixes[(i + i / kMixCount) % kMixCount]);
    if (i % 4 == 0) m.put_special_values();
    if (const marlin_status status = m.pack(1); status != MARLIN_OK)
      return testing::AssertionFailure() << "packing: " << marlin_status_name(status);
    if (!is_served(m.desc())) return {};
    const auto ran = m.run();
    return ran ? m.check() : ran;
  });
}

/// FP4 and FP8 weights by activations that are rounded to E4M3, and integers by INT8 with a scale per row, by whichever kernel
/// the backend chooses, also with NaN, infinity, -0 and subnormals.
TEST_F(Products, OfRoundedActivationsAreRight) {
  double nearest = 0;
  for (uint32_t i = 0; i < cases_of_forms(400); ++i) {
    trial::Case c = i % 3 == 0 ? case_of_form(i) : fp8_case(i);
    if (i % 3 == 0) {
      c.compute = MARLIN_COMPUTE_INT8;
      c.activation_group = c.k;
    }
    trial::use_context(gpu_->context("", i % 5 == 0 ? 24 : mm::gpu::kMostRows));
    trial::Trial t(c);
    if (i % 4 == 0) {
      trial::put_special_scales(t);
      trial::put_special_activations(t);
    }
    const auto packed = t.pack(), ran = packed ? t.run() : packed, right = ran ? t.check() : ran;
    EXPECT_TRUE(right) << c.describe();
    const auto unpacked = packed ? t.check_unpack() : packed;
    EXPECT_TRUE(unpacked) << c.describe();
    nearest = std::max(nearest, t.worst);
  }
  std::printf("nearest %.3f of its bound\n", nearest);
}

/// Mixtures of experts with activations that are rounded to E4M3.
TEST_F(Products, OfFp8ExpertsAreRight) {
  for (uint32_t i = 0; i < cases_of_forms(60); ++i) {
    trial::Case c = fp8_case(i);
    c.n = std::min<int64_t>(c.n, 256);
    c.k = std::min<int64_t>(c.k, 1024);
    c.together = false;
    c.tensor = trial::Tensor::none;
    trial::use_context(gpu_->context("", i % 5 == 0 ? 24 : mm::gpu::kMostRows));
    trial::Mixture m(c, trial::kMixes[i % std::size(trial::kMixes)]);
    if (i % 4 == 0) m.put_special_values();
    ASSERT_EQ(m.pack(1), MARLIN_OK) << c.describe();
    const auto ran = m.run(), right = ran ? m.check() : ran;
    EXPECT_TRUE(right) << c.describe();
  }
}

/// A product of some formats, by the kernel that is meant for it.
void expect_right(Gpu& gpu, int64_t m, int64_t n, int64_t k) {
  for (const auto& [format, sparse] : {std::pair(trial::kFormats[0], false),
                                       {trial::kFormats[4], false},
                                       {trial::kFormats[5], false},
                                       {trial::kFormats[6], false},
                                       {trial::kFormats[0], true},
                                       {trial::kFormats[4], true},
                                       {trial::kFormats[5], true}}) {
    trial::Case c;
    c.format = format.format;
    c.sparse = sparse;
    c.group = format.format == MARLIN_FORMAT_NVFP4 ? 16 : format.format == MARLIN_FORMAT_MXFP4 ? 32 : 128;
    if (format.format == MARLIN_FORMAT_NVFP4) c.scale_type = ScaleType::e4m3;
    if (format.format == MARLIN_FORMAT_MXFP4) c.scale_type = ScaleType::e8m0;
    c.a_type = c.c_type = m % 2 == 0 ? MARLIN_F16 : MARLIN_BF16;
    c.m = m, c.n = n, c.k = k;
    trial::use_context(gpu.context("", mm::gpu::kMostRows));
    double worst = 0;
    EXPECT_TRUE(trial::holds(c, &worst)) << c.describe();
  }
}

/// Shapes of models, whose sums are long.
TEST_F(Products, OfLongRowsAreRight) {
  for (const int64_t m : {1, 7, 13, 32, 65, 130}) expect_right(*gpu_, m, 300, 4096 + 48);
}

/// More row blocks than there are multiprocessors: teams of 4, 8 and 16 warps take several in turn.
TEST_F(Products, OfManyRowBlocksAreRight) {
  for (const int64_t m : {1, 8, 24}) {
    expect_right(*gpu_, m, 21160, 320);
    expect_right(*gpu_, m, 5120, 2880);
    expect_right(*gpu_, m, 4400, 4096);
  }
}

/// Mixtures of experts of all formats, in blocks of all tokens or a few.
TEST_F(Products, OfExpertsAreRight) {
  uint32_t seed = 1;
  for (const trial::Kind& kind : trial::kKinds) {
    for (const marlin_compute compute : {MARLIN_COMPUTE_DEFAULT, MARLIN_COMPUTE_INT8}) {
      for (const trial::Mix& mix : trial::kMixes) {
        trial::Case c = trial::case_of(kind, compute, 1, seed % 3 == 0 ? 70 : 168, seed % 2 == 0 ? 150 : 256);
        trial::vary(c, ++seed);
        c.epilogue = static_cast<marlin_epilogue>(seed % 8);
        c.interleaved = c.epilogue >= MARLIN_EPILOGUE_SWIGLU && seed % 2 == 0;
        // A gather of columns for each routed row. Files have no zeros of their own with it.
        if (kind.zeros == ZeroKind::integer && seed % 4 == 1 && c.k % kind.group == 0) c.order = trial::Order::shuffled;
        trial::use_context(gpu_->context("", seed % 5 == 0 ? 24 : mm::gpu::kMostRows));
        trial::Mixture m(c, mix);
        if (seed % 6 == 0) m.put_special_values();
        ASSERT_EQ(m.pack(1), MARLIN_OK) << c.describe();
        const auto ran = m.run(), right = ran ? m.check() : ran;
        EXPECT_TRUE(right) << c.describe() << ", mix " << &mix - trial::kMixes;
      }
    }
  }
}

/// Routed rows that blocks find themselves, in several blocks of tokens.
TEST_F(Products, OfFewRoutedRowsAreRight) {
  for (const int64_t most_rows : {1, 24})
    for (const trial::Mix& mix :
         {trial::Mix{7, 9, 4, trial::Pick::outside, false, MARLIN_F16}, trial::Mix{4, 5, 8, trial::Pick::repeated, true, 0}}) {
      trial::Case c = trial::case_of(trial::kKinds[4], MARLIN_COMPUTE_DEFAULT, 1, 70, 192);
      c.a_type = MARLIN_F32;  // which no tiles serve
      c.strides = trial::Strides::padded;
      trial::use_context(gpu_->context("", most_rows));
      trial::Mixture m(c, mix);
      ASSERT_EQ(m.pack(1), MARLIN_OK);
      const auto ran = m.run(), right = ran ? m.check() : ran;
      EXPECT_TRUE(right) << mix.tokens << " tokens, blocks of " << most_rows;
    }
}

/// MXFP4 weights of random numbers, [experts n, k].
mm::weights random_weights(marlin_context* context, uint32_t experts, int64_t n, int64_t k) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  std::vector<std::vector<float>> numbers(experts);
  std::vector<marlin_pack_desc> parts;
  for (auto& of_expert : numbers) {
    of_expert.resize(static_cast<size_t>(n * k));
    for (float& x : of_expert) x = normal(random);
    auto desc = mm::make<marlin_pack_desc>();
    desc.format = MARLIN_FORMAT_MXFP4;
    desc.n = n;
    desc.k = k;
    desc.values = mm::matrix_view(of_expert.data(), n, k);
    parts.push_back(desc);
  }
  std::vector<const marlin_pack_desc*> addresses;
  for (const marlin_pack_desc& part : parts) addresses.push_back(&part);
  mm::weights weights;
  EXPECT_EQ(marlin_weights_pack(context, addresses.data(), experts, experts, weights.out(), nullptr), MARLIN_OK);
  return weights;
}

/// The ids are another expert's until the product before, which takes long and writes zeros over them, ends. A kernel that
/// starts sooner may guess, but must not use what it has read.
TEST_F(Products, OfIdsThatTheKernelBeforeWritesAreRight) {
  constexpr int64_t kTokens = 3, kTopK = 2, kWidth = 2048, kLong = 32768, kRows = kTokens * kTopK;
  marlin_context* const context = gpu_->context("", mm::gpu::kMostRows);
  const mm::weights experts = random_weights(context, 2, kWidth, kWidth);
  const mm::weights writer = random_weights(context, 1, kTopK, kLong);
  mm::buffer ids, zeros, a, c;
  const auto make = [&](mm::buffer& buffer, int64_t bytes) {
    ASSERT_EQ(marlin_buffer_create(context, static_cast<uint64_t>(bytes), buffer.out(), nullptr), MARLIN_OK);
  };
  make(ids, kRows * 4);
  make(zeros, kTokens * kLong * 2);
  make(a, kTokens * kWidth * 2);
  make(c, kRows * kWidth * 2);
  const auto bf16 = [](const mm::buffer& buffer, int64_t rows, int64_t columns) {
    marlin_matrix view = buffer.matrix<float>(rows, columns);
    view.dtype = MARLIN_BF16;
    return view;
  };
  constexpr uint16_t kOne = 0x3F80;
  std::fill_n(static_cast<uint16_t*>(a.data()), kTokens * kWidth, kOne);
  auto write = mm::make<marlin_gemm_desc>(), product = mm::make<marlin_gemm_desc>();
  write.weights = writer.get();
  write.a = bf16(zeros, kTokens, kLong);
  write.c = ids.matrix<float>(kTokens, kTopK);
  product.weights = experts.get();
  product.a = bf16(a, kTokens, kWidth);
  product.c = bf16(c, kRows, kWidth);
  product.expert_ids = ids.matrix<int32_t>(kTokens, kTopK);
  mm::stream stream;
  ASSERT_EQ(marlin_stream_create(context, nullptr, stream.out(), nullptr), MARLIN_OK);
  const auto result_of_ids = [&](int32_t id, bool writes) {
    std::fill_n(static_cast<int32_t*>(ids.data()), kRows, id);
    EXPECT_EQ(writes ? marlin_gemm(stream.get(), &write, nullptr) : MARLIN_OK, MARLIN_OK);
    EXPECT_EQ(marlin_gemm(stream.get(), &product, nullptr), MARLIN_OK);
    EXPECT_EQ(marlin_stream_wait(stream.get(), UINT64_MAX, nullptr), MARLIN_OK);
    const auto* const numbers = static_cast<const uint16_t*>(c.data());
    return std::vector<uint16_t>(numbers, numbers + kRows * kWidth);
  };
  const auto of_first = result_of_ids(0, false);
  EXPECT_NE(result_of_ids(1, false), of_first);
  for (int turn = 0; turn < 8; ++turn) EXPECT_EQ(result_of_ids(1, true), of_first);
}

/// Long rows of the forms that kernels are compiled for, few and many tokens.
TEST_F(Products, OfLongExpertsAreRight) {
  uint32_t seed = 1;
  for (const int kind : {0, 1, 4, 5})
    for (const int64_t tokens : {1, 3, 17, 64, 200}) {
      trial::Case c = trial::case_of(trial::kKinds[kind], MARLIN_COMPUTE_DEFAULT, 1, 320, 1088);
      if (kind < 2) c.group = 64, c.k = 1088;
      c.a_type = c.c_type = ++seed % 2 == 0 ? MARLIN_F16 : MARLIN_BF16;
      c.epilogue = MARLIN_EPILOGUE_SWIGLU_OAI;
      c.seed = seed;
      trial::use_context(gpu_->context("", mm::gpu::kMostRows));
      trial::Mixture m(c, {tokens, 32, 4, trial::Pick::random, seed % 3 == 0, seed % 3 == 1 ? MARLIN_F32 : 0});
      ASSERT_EQ(m.pack(1), MARLIN_OK);
      const auto ran = m.run(), right = ran ? m.check() : ran;
      EXPECT_TRUE(right) << c.describe() << ", " << tokens << " tokens";
    }
}

/// MARLIN_GEMM_ROW_INVARIANT: every M from 1 to 257 gives a row the bits that it has alone.
TEST_F(Products, OfRowInvariantGemmsHaveTheBitsOfOneRow) {
  trial::use_context(gpu_->context("", mm::gpu::kMostRows));
  constexpr marlin_dtype kTypes[] = {MARLIN_F16, MARLIN_BF16, MARLIN_F32};
  constexpr int64_t kMost = 257;
  int products = 0;
  for (const trial::Kind& kind : trial::kKinds)
    for (const marlin_compute compute : {MARLIN_COMPUTE_DEFAULT, MARLIN_COMPUTE_INT8}) {
      trial::Case c = trial::case_of(kind, compute, kMost, 70, 1100);
      c.a_type = kTypes[products % 3];
      c.row_invariant = true;
      trial::Trial t(c);
      ASSERT_TRUE(t.pack()) << c.describe();
      for (int64_t row = 0; row < kMost; ++row) {
        marlin_gemm_desc one = t.gemm_desc();
        one.a = trial::slice(one.a, row, 1);
        one.c = trial::slice(one.c, row, 1);
        ASSERT_EQ(marlin_gemm(nullptr, &one, nullptr), MARLIN_OK) << c.describe();
      }
      const std::vector<uint8_t> alone = t.c.raw();
      for (int64_t m = 2; m <= kMost; ++m) {
        t.spec.m = m;
        ASSERT_TRUE(t.run());
        const std::vector<uint8_t> together = t.c.raw();
        const auto bytes = static_cast<std::ptrdiff_t>(m * t.spec.columns() * oracle::bytes_of(t.spec.c_type));
        ASSERT_TRUE(std::equal(together.begin(), together.begin() + bytes, alone.begin())) << t.spec.describe();
        ++products;
      }
    }
  std::printf("%d products\n", products);
}

}  // namespace
