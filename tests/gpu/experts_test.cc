// Mixtures of experts on the real Metal shaders: every routed row against its own float64 bound.
#include "gpu.h"
#include "kernels/formats_under_test.h"
#include "kernels/mixture.h"
#include "test.h"

namespace {

using namespace device_test;
using trial::Case;
using trial::Mix;
using trial::Mixture;
using trial::Pick;

/// Every access is checked. The device has no kernel but the one named, if any, and takes `most_rows` rows at a time.
class Experts : public testing::Test {
 protected:
  static Gpu gpu(const char* kernel = "", int64_t most_rows = mm::gpu::kMostRows, uint64_t seed = 5) {
    return Gpu(std::make_shared<TestbedDevice>(TestbedOptions{.seed = seed, .changes = {}}),
               {.probe = false, .most_rows = most_rows}, {.kernel = kernel});
  }
  static void expect_right(const Case& c, const Mix& mix, bool special = false) {
    Mixture m(c, mix);
    if (special) m.put_special_values();
    ASSERT_EQ(m.pack(1), MARLIN_OK);
    ASSERT_TRUE(m.run()) << c.describe();
    EXPECT_TRUE(m.check()) << c.describe() << ", " << mix.tokens << " tokens, " << mix.experts << " experts";
  }
};

TEST_F(Experts, TakeEveryEpilogue) {
  const Gpu device = gpu();
  for (marlin_epilogue epilogue = MARLIN_EPILOGUE_SILU; epilogue <= MARLIN_EPILOGUE_SITU; ++epilogue) {
    for (const marlin_dtype scales : {0, MARLIN_F32}) {
      Case c = trial::case_of(trial::kKinds[4], MARLIN_COMPUTE_DEFAULT, 1, 74, 64);
      c.a_type = MARLIN_BF16;
      c.epilogue = epilogue;
      c.interleaved = epilogue == MARLIN_EPILOGUE_SWIGLU_OAI;
      c.bias_type = MARLIN_F32;
      c.seed = 3;
      expect_right(c, {9, 4, 2, Pick::outside, false, scales});
    }
  }
}

/// Each expert has its own order of columns: A is gathered for each routed row.
TEST_F(Experts, OfActOrderAreThoseOfFloat64) {
  for (const int64_t most_rows : {mm::gpu::kMostRows, int64_t{5}}) {
    const Gpu device = gpu("", most_rows);
    for (const marlin_compute compute : {MARLIN_COMPUTE_DEFAULT, MARLIN_COMPUTE_INT8})
      for (const bool row_a_slot : {false, true})
        for (const marlin_dtype a_type : {MARLIN_F32, MARLIN_F16}) {
          Case c = trial::case_of(trial::kKinds[1], compute, 1, 70, 256);
          c.order = trial::Order::shuffled;
          c.a_type = a_type;
          expect_right(c, {12, 5, 3, Pick::outside, row_a_slot, MARLIN_F32}, a_type == MARLIN_F16);
        }
  }
}

/// More experts than threads that sort them, and more rows than one of its turns takes.
TEST_F(Experts, OfManyExpertsAreSorted) {
  const Gpu device = gpu();
  Case c = trial::case_of(trial::kKinds[4], MARLIN_COMPUTE_DEFAULT, 1, 32, 32);
  c.a_type = MARLIN_F16;
  expect_right(c, {90, 600, 7, Pick::random, false, MARLIN_F32});
  expect_right(c, {300, 3, 2, Pick::random, false, 0});
}

/// A product's matrices in buffers of the device, which a stream needs.
class InBuffers {
 public:
  InBuffers(const mm::context& context, const marlin_gemm_desc& host) : host_(host), desc(host) {
    for (marlin_matrix* const m : {&desc.a, &desc.c, &desc.bias, &desc.expert_ids, &desc.expert_scales}) {
      if (m->data == nullptr) continue;
      buffers_.emplace_back(context, bytes(*m));
      std::memcpy(buffers_.back().data(), m->data, bytes(*m));
      const int64_t stride = m->row_stride;
      marlin_matrix in_buffer = buffers_.back().matrix<uint8_t>(m->rows, m->cols);
      in_buffer.row_stride = stride, in_buffer.dtype = m->dtype;
      *m = in_buffer;
      if (m == &desc.c) c_ = buffers_.size() - 1;
    }
  }
  /// Back to the host's C.
  void copy_back() const { std::memcpy(host_.c.data, buffers_[c_].data(), bytes(host_.c)); }

 private:
  static uint64_t bytes(const marlin_matrix& m) {
    const int64_t stride = m.row_stride != 0 ? m.row_stride : m.cols;
    const uint64_t element = m.dtype == MARLIN_I32 ? 4 : static_cast<uint64_t>(oracle::bytes_of(m.dtype));
    return static_cast<uint64_t>((m.rows - 1) * stride + m.cols) * element;
  }
  const marlin_gemm_desc host_;
  std::vector<mm::buffer> buffers_;
  size_t c_ = 0;

 public:
  marlin_gemm_desc desc;
};

TEST_F(Experts, RunInTheScratchThatPreparingAsksFor) {
  const Gpu device = gpu();
  for (const int64_t tokens : {1, 3, 24}) {
    for (const trial::Order order : {trial::Order::plain, trial::Order::shuffled}) {
      Case c = trial::case_of(trial::kKinds[1], MARLIN_COMPUTE_INT8, 1, 70, 128);
      c.order = order;
      Mixture m(c, {tokens, 6, 4, Pick::random, false, MARLIN_F32});
      ASSERT_EQ(m.pack(1), MARLIN_OK);
      const InBuffers product(device.context, m.desc());
      const marlin_gemm_desc* const descs[] = {&product.desc};
      uint64_t bytes = 0;
      EXPECT_OK(marlin_prepare, nullptr, descs, 1u, int64_t{24}, &bytes);
      const mm::buffer scratch(device.context, bytes);
      auto with = mm::make<marlin_stream_desc>();
      with.scratch = scratch.matrix<uint8_t>(1, static_cast<int64_t>(bytes));
      const mm::stream stream(device.context, with);
      EXPECT_OK(marlin_gemm, stream.get(), descs[0]);
      EXPECT_OK(marlin_stream_wait, stream.get(), UINT64_MAX);
      product.copy_back();
      EXPECT_TRUE(m.check()) << tokens << " tokens";
    }
  }
}

/// A mistake in a shader, and the product that shows it.
struct Planted {
  const char *name, *file, *from, *to;
  enum What : uint8_t { gemv, zeros, permuted, few, direct, shared } what = gemv;
};
void PrintTo(const Planted& planted, std::ostream* out) { *out << planted.name; }
constexpr Planted kPlanted[] = {
    {"lost_first_rows", "route.metal", "int row = part; row < rows; row += parts)\n      if",
     "int row = part + parts; row < rows; row += parts)\n      if"},
    {"lost_last_token", "route.metal", "int row = part; row < rows; row += parts)\n      if",
     "int row = part; row < rows - args.top_k; row += parts)\n      if"},
    {"lost_row_of_the_last_expert", "route.metal", "places[e + 1] : all)", "places[e + 1] : all - 1)"},
    {"sum_that_includes_its_own", "route.metal", "simd_prefix_exclusive_sum", "simd_prefix_inclusive_sum"},
    {"sum_of_a_simdgroup_too_many", "route.metal", "if (s < simdgroup)", "if (s <= simdgroup)"},
    {"scale_of_the_first_slot", "route.metal", "args.scale_stride + s", "args.scale_stride"},
    {"lost_last_tile", "route.metal", "all) + args.tile_rows - 1)", "all))"},
    {"doubled_tile", "route.metal", "places[e] + done", "places[e]"},
    {"rows_past_an_item", "route.metal", "min(count - done, args.tile_rows)", "args.tile_rows"},
    {"id_past_the_stack", "route.metal", "id < args.experts", "id <= args.experts"},
    {"no_barrier_after_ids", "route.metal", "threadgroup_barrier(mem_flags::mem_device);", ""},
    {"no_barrier_after_places", "route.metal", "threadgroup_barrier(mem_flags::mem_threadgroup);\n  int items", "int items"},
    {"codes_of_the_expert_before", "product.h", "weights = item[0] *", "weights = max(item[0] - 1, 0) *"},
    {"row_behind_an_item", "product.h", "item[1] + item[2] - 1", "item[1] + item[2]"},
    {"first_row_of_another_item", "product.h", "first = item[1]", "first = 0"},
    {"routed_row_for_row_of_a", "product.h", "routed_row(at) / rows_of_a", "routed_row(at)"},
    {"stored_by_place", "product.h", "return routed ? routed_row(first + i)", "return routed ? first + i"},
    {"another_experts_codes", "gemv.metal", "of_expert(of.codes, tile)", "of.codes"},
    {"another_experts_scales", "gemv.metal", "of_expert(of.scales, tile)", "of.scales"},
    {"another_experts_zeros", "gemv.metal", "of_expert(of.zeros, tile)", "of.zeros", Planted::zeros},
    {"another_experts_codes_direct", "regdecode.metal", "of_expert(codes, rows)", "codes", Planted::direct},
    {"another_experts_scales_direct", "regdecode.metal", "of_expert(scales, rows)", "scales", Planted::direct},
    {"half_of_the_rows_left_out", "gemv.metal", "!tile.has(ROWS / 2)", "!tile.has(ROWS / 2 + 1)"},
    {"eight_rows_left_out", "regdecode.metal", "!rows.has(8 * m)", "!rows.has(8 * m + 7)", Planted::direct},
    {"eight_rows_left_out_shared", "regdecode.metal", "!rows.has(8 * m)", "!rows.has(8 * m + 7)", Planted::shared},
    {"shared_row_of_the_first_eight", "regdecode.metal", "rows.of_a(8 * m + row)", "rows.of_a(row)", Planted::shared},
    {"row_of_another_token", "gemv.metal", "row_of(of.a, args, tile.of_a(m))", "row_of(of.a, args, tile.of_a(0))"},
    {"no_end_of_items", "gemv.metal", "if (tile.empty) return;", ""},
    {"another_experts_factor", "finish.metal", "(const device char*)factors + expert * args.expert_stride", "factors"},
    {"another_experts_bias", "finish.metal", "expert * args.bias_stride", "0"},
    {"id_outside_not_skipped", "finish.metal", "if (expert < 0) continue;", ""},
    {"only_the_last_slot", "finish.metal", "fma(scales[row], result, v)", "scales[row] * result"},
    {"scale_of_another_slot", "finish.metal", "scales[row]", "scales[m]"},
    {"sum_of_too_few_slots", "finish.metal", "row < (m + 1) * of_row", "row < (m + 1) * of_row - 1"},
    {"few_ids_of_the_first_token", "product.h", "lane / args.top_k * args.id_stride", "0", Planted::few},
    {"few_id_past_the_stack", "product.h", "id < args.experts ?", "id <= args.experts ?", Planted::few},
    {"few_rows_of_no_expert", "product.h", "expert >= 0 && before", "before", Planted::few},
    {"few_lost_later_tiles", "product.h", "before % rows == 0", "before == 0", Planted::few},
    {"few_item_of_another_expert", "product.h", "begins && item == tile", "begins && item <= tile", Planted::few},
    {"few_rows_of_earlier_tiles", "product.h", "expert == own && before >= from", "expert == own", Planted::few},
    {"few_rows_past_a_tile", "product.h", "min(int(popcount(few)), rows) - 1", "rows - 1", Planted::few},
    {"few_rows_in_another_order", "product.h", "left &= left - 1", "left >>= 1", Planted::few},
    {"few_unknown_to_finish", "gemv.metal", "group.x == 0 && group.y == 0)", "group.x == 1)", Planted::few},
    {"few_scales_of_the_first_token", "product.h", "lane / args.top_k * args.scale_stride", "0", Planted::few},
    {"another_experts_columns", "prepare.metal", "expert * args.expert_stride", "0", Planted::permuted},
    {"lost_last_gathered_row", "prepare.metal", "m < routes[1]", "m < routes[1] - 1", Planted::permuted},
    {"place_for_routed_row", "prepare.metal", "row = routed_row / args.rows_of_a", "row = m / args.rows_of_a",
     Planted::permuted},
};

class PlantedInExperts : public testing::TestWithParam<Planted> {};

/// What the product of this kind comes to, of tiles of which some are full and some are not.
testing::AssertionResult run(Planted::What what, const std::vector<TestbedOptions::Change>& changes) {
  constexpr const char* kKernels[] = {"gemv_fp4_f16_m2",
                                      "gemv_u4_f16_m2",
                                      "gemv_u4_f16_m2",
                                      "gemv_fp4_f16_m2",
                                      "regdecode_fp4_f16_m16_n32_direct",
                                      "regdecode_fp4_f16_m32_n128_threadgroup"};
  const Gpu device(std::make_shared<TestbedDevice>(TestbedOptions{.seed = 3, .changes = changes}), {.probe = false},
                   {.kernel = kKernels[what]});
  const bool fp4 = std::string(kKernels[what]).find("_fp4_") != std::string::npos;
  Case c = trial::case_of(trial::kKinds[fp4 ? 5 : 1], MARLIN_COMPUTE_DEFAULT, 1, 70, 128);
  if (what == Planted::permuted) c.order = trial::Order::shuffled;
  c.a_type = MARLIN_F16;
  c.bias_type = MARLIN_F32;
  c.seed = 3;
  const int64_t tokens = what == Planted::few ? 8 : what >= Planted::direct ? 40 : 11;  // 8: as few rows as lanes
  Mixture m(c, {tokens, 5, 4, Pick::outside, false, MARLIN_F32});
  if (m.pack(1) != MARLIN_OK) return testing::AssertionFailure() << "packing";
  const auto ran = m.run();
  return ran ? m.check() : ran;
}

TEST(ExpertsWithMistakes, AreRightWithoutThem) {
  for (const auto what : {Planted::gemv, Planted::zeros, Planted::permuted, Planted::few, Planted::direct, Planted::shared})
    EXPECT_TRUE(run(what, {})) << int{what};
}

TEST_P(PlantedInExperts, AreFound) {
  const Planted& planted = GetParam();
  const auto right = run(planted.what, {{planted.file, planted.from, planted.to}});
  EXPECT_FALSE(right);
  EXPECT_EQ(std::string(right.message()).find(" has no \""), std::string::npos) << right.message();
  std::printf("%s\n", right.message());
}

INSTANTIATE_TEST_SUITE_P(Mistakes, PlantedInExperts, testing::ValuesIn(kPlanted),
                         [](const auto& i) { return std::string(i.param.name); });

TEST_F(Experts, WhoseLayoutsDifferAreRefused) {
  const Gpu device = gpu();
  Case c = trial::case_of(trial::kKinds[1], MARLIN_COMPUTE_DEFAULT, 1, 70, 256);
  c.order = trial::Order::unequal;
  Mixture m(c, {4, 5, 2, Pick::random, false, 0});
  ASSERT_EQ(m.pack(1), MARLIN_OK);
  const auto ran = m.run();
  EXPECT_FALSE(ran);
  EXPECT_NE(std::string(ran.message()).find("the packed layouts of the experts differ"), std::string::npos) << ran.message();
}

/// The kernels that the two products of a layer's experts dispatch.
std::vector<std::string> dispatches_of_layer(int64_t tokens, int64_t top_k) {
  std::vector<std::string> names;
  TestbedOptions options{.seed = 5, .changes = {}};
  options.counted = [&](const std::string& kernel, const metal_on_cpu::Counters&) { names.push_back(kernel); };
  const Gpu device(std::make_shared<TestbedDevice>(options), {.probe = false});
  Case up = trial::case_of(trial::kKinds[4], MARLIN_COMPUTE_DEFAULT, 1, 128, 96);
  up.a_type = MARLIN_F16;
  Case down = up;
  up.epilogue = MARLIN_EPILOGUE_SWIGLU;
  up.interleaved = true;
  Mixture of_up(up, {tokens, 16, top_k, Pick::random, false, 0});
  Mixture of_down(down, {tokens, 16, top_k, Pick::random, true, MARLIN_F32});
  for (Mixture* m : {&of_up, &of_down}) {
    EXPECT_EQ(m->pack(1), MARLIN_OK);
    EXPECT_TRUE(m->run());
    EXPECT_TRUE(m->check());
  }
  return names;
}

/// Products of up to 32 routed rows sort them: gate and up, their activation, down, and the sums of a token's rows.
TEST_F(Experts, OfOneTokenTakeFourDispatchesALayer) {
  EXPECT_EQ(dispatches_of_layer(1, 4), (std::vector<std::string>{"gemv_fp4_f16_m1", "finish", "gemv_fp4_f16_m1", "finish"}));
  EXPECT_EQ(dispatches_of_layer(4, 8).size(), 4u);
  EXPECT_EQ(dispatches_of_layer(11, 3).size(), 6u) << "33 rows are sorted first";
}

TEST_F(Experts, AreExplained) {
  const Gpu device = gpu();
  Case c = trial::case_of(trial::kKinds[4], MARLIN_COMPUTE_DEFAULT, 1, 70, 64);
  c.a_type = MARLIN_F16;
  Mixture m(c, {6, 12, 3, Pick::random, false, 0});
  ASSERT_EQ(m.pack(1), MARLIN_OK);
  const marlin_gemm_desc d = m.desc();
  char text_of[2048] = {};
  EXPECT_OK(marlin_explain, &d, text_of, sizeof text_of, nullptr);
  const std::string text = text_of;
  EXPECT_NE(text.find("kernel: gemv_fp4_f16_m6"), std::string::npos) << text;
  EXPECT_NE(text.find("experts: 12, 3 a token, sorted by each threadgroup into up to 13 tiles of rows"), std::string::npos)
      << text;
}

}  // namespace
