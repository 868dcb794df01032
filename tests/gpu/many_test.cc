// Several products a call, and several blocks of rows a product: what is recorded in which order, and what products share.
#include "api/buffer.h"
#include "backends/gpu/pack.h"
#include "must.h"
#include "recorded.h"
#include "test.h"

namespace {

using namespace device_test;

TEST(Blocks, OfPreparedActivationsBeginAtTheirRows) {
  for (const bool int8 : {true, false}) {
    const std::string name = int8 ? "gemv_u4_i8_m4" : "gemv_u4_f16_m4";
    World world({.probe = false, .most_rows = 16}, {.kernel = name});
    const int64_t n = 64, k = int8 ? 40 : 96, slots = int8 ? 64 : 96, m = 35, element = int8 ? 1 : 2;
    const mm::weights w = pack(world.context, n, k, 1, !int8);
    ASSERT_EQ(layout_of(w).slots, slots);
    const mm::stream stream = stream_of(world);
    const Matrix a(world.context, m, k, MARLIN_F16, k + 8), c(world.context, m, n, MARLIN_F32);
    auto d = gemm_desc(w, a, c);
    d.compute = int8 ? MARLIN_COMPUTE_INT8 : MARLIN_COMPUTE_DEFAULT;
    const auto all = recorded(world, stream, {d});
    const std::string prepare = int8 ? "quantize_f16" : "gather_b2";
    ASSERT_EQ(outline(all), (Lines{prepare, prepare, prepare, "barrier", name, name, name}));
    for (size_t i = 0; i < 3; ++i) {
      const Command &first = all[i], &second = all[4 + i];
      const uint64_t row = 16 * i;
      const int64_t rows = i < 2 ? 16 : 3;
      const auto prepared = value_of<PrepareArgs>(first, MARLIN_BUFFER_PREPARE_ARGS);
      const auto multiplied = value_of<ProductArgs>(second, MARLIN_BUFFER_ARGS);
      EXPECT_EQ(prepared.m, rows);
      EXPECT_EQ(multiplied.m, rows);
      EXPECT_EQ(multiplied.lda, slots);
      EXPECT_EQ(first.arguments.at(MARLIN_BUFFER_SOURCE).offset, row * static_cast<uint64_t>(k + 8) * 2);
      const uint64_t at = place_of(all[0], MARLIN_BUFFER_QUANTIZED) + row * static_cast<uint64_t>(slots * element);
      EXPECT_EQ(place_of(first, MARLIN_BUFFER_QUANTIZED), at);
      EXPECT_EQ(place_of(second, MARLIN_BUFFER_A), at);
      EXPECT_EQ(second.arguments.at(MARLIN_BUFFER_C).offset, row * static_cast<uint64_t>(n) * 4);
      if (!int8) continue;
      const uint64_t scales = place_of(all[0], MARLIN_BUFFER_QUANT_SCALES) + row * static_cast<uint64_t>(slots / 32) * 4;
      EXPECT_EQ(place_of(first, MARLIN_BUFFER_QUANT_SCALES), scales);
      EXPECT_EQ(place_of(second, MARLIN_BUFFER_A_SCALES), scales);
    }
  }
}

TEST(Blocks, OfSeveralProductsGoInRounds) {
  const std::string name = "gemv_u4_f16_m4";
  World world({.probe = false, .most_rows = 16}, {.kernel = name});
  const mm::weights w = pack(world.context, 64, 64, 1);
  const mm::stream stream = stream_of(world);
  constexpr int64_t kM[] = {35, 3, 20};
  std::vector<Matrix> a, c;
  for (const int64_t m : kM) {
    a.emplace_back(world.context, m, 64, MARLIN_F16);
    c.emplace_back(world.context, m, m == 35 ? 32 : 64, MARLIN_F32);
  }
  marlin_gemm_desc d[] = {gemm_desc(w, a[0], c[0]), gemm_desc(w, a[1], c[1]), gemm_desc(w, a[2], c[2])};
  d[0].epilogue = MARLIN_EPILOGUE_SWIGLU;  // partial sums, whose place the next block takes
  const auto all = recorded(world, stream, {d[0], d[1], d[2]});
  ASSERT_EQ(outline(all), (Lines{name, name, name, "barrier", "finish", "barrier", name, name, "barrier", "finish", "barrier",
                                 name, "barrier", "finish"}));
  const struct {
    size_t at, product;
    int64_t rows, first;
  } kExpected[] = {{0, 0, 16, 0}, {1, 1, 3, 0}, {2, 2, 16, 0}, {6, 0, 16, 16}, {7, 2, 4, 16}, {11, 0, 3, 32}};
  for (const auto& e : kExpected) {
    SCOPED_TRACE(e.at);
    EXPECT_EQ(value_of<ProductArgs>(all[e.at], MARLIN_BUFFER_ARGS).m, e.rows);
    const auto* from = static_cast<const gpu::GpuBuffer&>(*a[e.product].buffer.get()->memory).buffer().get();
    expect_bound(all[e.at], MARLIN_BUFFER_A, from, static_cast<uint64_t>(e.first) * 64 * 2);
    if (e.product != 0) {
      EXPECT_EQ(all[e.at].arguments.at(MARLIN_BUFFER_C).offset, static_cast<uint64_t>(e.first) * 64 * 4);
      continue;
    }
    const size_t finish = e.first == 0 ? 4 : e.first == 16 ? 9 : 13;
    EXPECT_EQ(value_of<ProductArgs>(all[finish], MARLIN_BUFFER_ARGS).m, e.rows);
    EXPECT_EQ(all[finish].arguments.at(MARLIN_BUFFER_C).offset, static_cast<uint64_t>(e.first) * 32 * 4);
    EXPECT_EQ(place_of(all[finish], MARLIN_BUFFER_PARTIALS), place_of(all[e.at], MARLIN_BUFFER_PARTIALS));
    EXPECT_EQ(place_of(all[finish], MARLIN_BUFFER_PARTIALS), place_of(all[4], MARLIN_BUFFER_PARTIALS));
  }
}

/// Products whose A begins at the same place: who prepares it.
TEST(Sharing, OfPreparedActivationsIsOfTheSameMatrixOnly) {
  World world;
  const mm::weights w = pack(world.context, 64, 64, 1);
  const mm::stream stream = stream_of(world);
  const Matrix a(world.context, 8, 64, MARLIN_F16, 72);
  std::vector<Matrix> c;
  for (int i = 0; i < 5; ++i) c.emplace_back(world.context, 8, 64, MARLIN_F32);
  std::vector<marlin_gemm_desc> d;
  for (const Matrix& each : c) {
    d.push_back(gemm_desc(w, a, each));
    d.back().compute = MARLIN_COMPUTE_INT8;
    d.back().a.rows = d.back().c.rows = 3;
  }
  d[1].a.rows = d[1].c.rows = 5;
  d[2].a.row_stride = 80;
  d[3].a.offset_bytes = 16;
  const auto all = recorded(world, stream, {d[0], d[1], d[2], d[3], d[4]});
  ASSERT_EQ(all.size(), 4u + 1 + 5) << "all but the last prepare their own";
  std::set<uint64_t> places, scales;
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(all[i].kernel, "quantize_f16");
    EXPECT_EQ(value_of<PrepareArgs>(all[i], MARLIN_BUFFER_PREPARE_ARGS).m, d[i].a.rows);
    EXPECT_EQ(place_of(all[5 + i], MARLIN_BUFFER_A), place_of(all[i], MARLIN_BUFFER_QUANTIZED));
    EXPECT_EQ(place_of(all[5 + i], MARLIN_BUFFER_A_SCALES), place_of(all[i], MARLIN_BUFFER_QUANT_SCALES));
    places.insert(place_of(all[i], MARLIN_BUFFER_QUANTIZED));
    scales.insert(place_of(all[i], MARLIN_BUFFER_QUANT_SCALES));
  }
  EXPECT_EQ(places.size() + scales.size(), 8u);
  EXPECT_EQ(place_of(all[9], MARLIN_BUFFER_A), place_of(all[5], MARLIN_BUFFER_A)) << "and the last has the first one's";
}

/// Calls without a stream copy what the host has to the device: once a matrix, not once a pointer.
TEST(Sharing, OfTheHostsOperandsIsOfTheSameMatrixOnly) {
  World world;
  const mm::weights w = pack(world.context, 64, 64, 1);
  std::vector<float> a = abi_test::numbers(size_t{8} * 80, 3), c(size_t{5} * 8 * 64);
  std::vector<marlin_gemm_desc> d(5, mm::make<marlin_gemm_desc>());
  for (size_t i = 0; i < 5; ++i) {
    d[i].weights = w.get();
    d[i].a = mm::matrix_view(a.data(), 1, 64);
    d[i].c = mm::matrix_view(c.data() + i * 8 * 64, 1, 64);
    d[i].a.row_stride = 72;
  }
  d[1].a.rows = d[1].c.rows = 8;
  d[2].a.rows = d[2].c.rows = 8;
  d[2].a.row_stride = 80;
  d[3].a.data = a.data() + 1;
  const marlin_gemm_desc* const many[] = {&d[0], &d[1], &d[2], &d[3], &d[4]};
  world.record.take();
  EXPECT_OK(marlin_gemm_many, nullptr, many, 5u);
  std::vector<Command> products;
  for (Command& command : world.record.take())
    if (command.what == "dispatch") products.push_back(std::move(command));
  ASSERT_EQ(products.size(), 5u);
  std::set<uint64_t> places;
  for (size_t i = 0; i < 5; ++i) {
    places.insert(place_of(products[i], MARLIN_BUFFER_A));
    const int64_t lda = value_of<ProductArgs>(products[i], MARLIN_BUFFER_ARGS).lda;
    const auto* staged = reinterpret_cast<const float*>(place_of(products[i], MARLIN_BUFFER_A));
    const auto* from = static_cast<const float*>(d[i].a.data);
    for (int64_t row = 0; row < d[i].a.rows; ++row)
      EXPECT_EQ(std::memcmp(staged + row * lda, from + row * d[i].a.row_stride, 64 * 4), 0) << i << ", row " << row;
  }
  EXPECT_EQ(places.size(), 4u);
  EXPECT_EQ(place_of(products[4], MARLIN_BUFFER_A), place_of(products[0], MARLIN_BUFFER_A));
}

TEST(Alignment, IsThatOfAddressAndRows) {
  World world;
  const mm::weights w = pack(world.context, 64, 32, 1);
  const mm::stream stream = stream_of(world);
  const Matrix a(world.context, 2, 32, MARLIN_F16, 40), c(world.context, 2, 64, MARLIN_F32);
  const struct {
    uint64_t offset;
    int64_t stride;
    uint32_t aligned;
  } kCases[] = {{0, 40, 1}, {16, 40, 1}, {8, 40, 0}, {0, 36, 0}, {8, 36, 0}, {2, 32, 0}};
  for (const auto& each : kCases) {
    auto d = gemm_desc(w, a, c);
    d.a.offset_bytes = each.offset;
    d.a.row_stride = each.stride;
    EXPECT_EQ(recorded(world, stream, {d}).back().constants.at(MARLIN_CONSTANT_ALIGNED), each.aligned)
        << "offset " << each.offset << ", stride " << each.stride;
  }
}

/// M rows of 64 x 64 weights on a device whose submissions hold 97 such rows by estimate: three tiles of 32 and some.
struct LongWork {
  explicit LongWork(marlin_native kind = MARLIN_NATIVE_NONE) : stream(with_limit(world, kind)) {}
  static mm::stream with_limit(World& world, marlin_native kind) {
    world.device->change().submission_seconds = 4e-6;
    return stream_of(world, kind);
  }
  /// What a product of m rows records.
  Lines product(int64_t m) {
    auto d = gemm_desc(w, a, c);
    d.a.rows = d.c.rows = m;
    return outline(recorded(world, stream, {d}));
  }
  World world;
  mm::weights w = pack(world.context, 64, 64, 1);
  Matrix a{world.context, 200, 64, MARLIN_F16}, c{world.context, 200, 64, MARLIN_F32};
  mm::stream stream;
};

TEST(Submissions, HoldNoMoreThanTheirTime) {
  const std::string tile = "regdecode_u4_f16_m32_n128_threadgroup", small = "regdecode_u4_f16_m8_n32_direct";
  LongWork work;
  EXPECT_EQ(work.product(200), (Lines{tile, "commit", tile, "commit", tile})) << "96, 96 and 8 rows";
  EXPECT_EQ(work.product(8), (Lines{"barrier", small})) << "8 and 8";
  EXPECT_EQ(work.product(40), (Lines{"barrier", tile})) << "and 40";
  EXPECT_EQ(work.product(48), (Lines{"barrier", "commit", tile})) << "and 48 are too many";
  EXPECT_OK(marlin_stream_flush, work.stream.get());
  EXPECT_EQ(work.product(64), (Lines{"barrier", tile})) << "a flush begins anew";
}

/// Nothing is submitted in front of a dispatch that is too long by itself.
TEST(Submissions, HoldOneDispatchAtLeast) {
  const std::string tile = "regdecode_u4_f16_m32_n128_threadgroup";
  LongWork work;
  work.world.device->change().submission_seconds = 1e-6;
  work.stream = stream_of(work.world);
  EXPECT_EQ(work.product(64), (Lines{tile, "commit", tile}));
}

TEST(Submissions, OfTheHostAreNotDivided) {
  const std::string tile = "regdecode_u4_f16_m32_n128_threadgroup";
  LongWork on_buffer(MARLIN_NATIVE_METAL_COMMAND_BUFFER);
  EXPECT_EQ(on_buffer.product(200), (Lines{"barrier", tile, tile, tile}));
  LongWork on_encoder(MARLIN_NATIVE_METAL_ENCODER);
  EXPECT_EQ(on_encoder.product(200), (Lines{"barrier", tile, tile, tile, "barrier"}));
}

TEST(Submissions, OfUnpackedRowsAreTimedByTheirBytes) {
  LongWork work;
  const Matrix out(work.world.context, 64, 64, MARLIN_F32);
  work.world.record.take();
  for (int i = 0; i < 4; ++i)  // 16 KiB each, of 40,000 bytes
    EXPECT_OK(marlin_weights_unpack, work.stream.get(), work.w.get(), nullptr, int64_t{0}, &out.view);
  EXPECT_EQ(outline(work.world.record.take()),
            (Lines{"unpack_u4", "barrier", "unpack_u4", "barrier", "commit", "unpack_u4", "barrier", "unpack_u4"}));
}

/// Without a limit, all is one submission.
TEST(Submissions, HoldAnythingWhereNothingEndsThem) {
  LongWork work;
  work.world.device->change().submission_seconds = 0;
  const mm::stream other = stream_of(work.world);
  work.stream = {};
  auto d = gemm_desc(work.w, work.a, work.c);
  work.world.record.take();
  EXPECT_OK(marlin_gemm, other.get(), &d);
  EXPECT_EQ(outline(work.world.record.take()), (Lines{"regdecode_u4_f16_m32_n128_threadgroup"}));
}

/// A problem without memory: a plan asks for the layout alone.
gpu::GpuWeights unpacked_weights(int64_t n, int64_t k) {
  mm::WeightMeta meta;
  meta.format = MARLIN_FORMAT_INT4;
  meta.n = n, meta.k = k;
  meta.group_size = 128, meta.groups = (k + 127) / 128;
  auto plan = gpu::plan_packing(meta);
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  return {std::move(meta), plan.value().layout, {}, {}, 0};
}

/// A problem of F16 that such weights multiply.
mm::GemmProblem problem_of(const gpu::GpuWeights& weights) {
  mm::GemmProblem problem;
  problem.weights = &weights;
  problem.a.dtype = MARLIN_F16;
  problem.c.dtype = MARLIN_F32;
  return problem;
}

/// A kernel that splits K whatever N is: it has room for one block of it.
TEST(PartialSums, StayWithinTheirBudget) {
  gpu::ProductKernel kernel = gpu::simdgroup_policy().kernels[3];  // four rows
  kernel.wide_threads = 0;
  kernel.activation_bytes = kernel.rows * 2 * kBlockSlots;
  const gpu::GpuWeights weights = unpacked_weights(65536, 8 * kBlockSlots);
  for (const int64_t m : {4, 32, 33, 1000}) {
    const auto plan = must(gpu::plan_with(kernel, problem_of(weights), m, {}));
    EXPECT_EQ(plan.splits, 8);
    EXPECT_EQ(plan.m_block, std::min<int64_t>(m, 32));
    EXPECT_LE(plan.partial_bytes, uint64_t{64} << 20);
  }
}

/// The first rows of a kernel, where it splits K most, may need the most scratch.
TEST(PlanBreakpoints, AreWhereKernelsBegin) {
  const auto all = gpu::simdgroup_policy().kernels;
  gpu::ProductKernel kernels[] = {all.front(), all.back()};
  kernels[0].m_max = 10, kernels[1].m_min = 11;
  const gpu::Policy policy{kernels};
  const gpu::KernelHealth health;
  dv::Capabilities device;
  device.matrix = true;
  const gpu::PlanRules rules{device, health, policy, {}};
  const gpu::GpuWeights weights = unpacked_weights(2560, 8192);
  const mm::GemmProblem problem = problem_of(weights);
  const auto scratch = [&](int64_t m) { return gpu::plan_gemm(problem, m, rules).value().scratch_bytes(); };
  uint64_t most = 0, told = 0;
  for (int64_t m = 1; m <= 400; ++m) most = std::max(most, scratch(m));
  const std::vector<int64_t> breakpoints = gpu::plan_breakpoints(problem, 400, rules).value();
  for (const int64_t m : breakpoints) told = std::max(told, scratch(m));
  EXPECT_GT(most, std::max(scratch(10), scratch(400))) << "else this test says nothing";
  EXPECT_EQ(told, most);
}

/// What prepares for M up to a limit asks for few values of M: among them are the most scratch and every variant of all M.
TEST(PlanBreakpoints, HaveTheMostScratchAndEveryVariant) {
  using Variants = std::set<std::pair<const gpu::ProductKernel*, bool>>;
  const gpu::KernelHealth health;
  for (const int64_t n : {32, 640, 2500})
    for (const int64_t k : {2080, 8192})
      for (int form = 0; form < 4; ++form)
        for (int features = 0; features < 3; ++features) {
          const gpu::GpuWeights weights = unpacked_weights(n, k);
          dv::Capabilities device;
          device.matrix = features > 0, device.tensor = features > 1;
          const gpu::PlanRules rules{device, health, gpu::simdgroup_policy(), {}};
          mm::GemmProblem problem;
          problem.weights = &weights;
          problem.a.dtype = MARLIN_F16;
          problem.c.dtype = MARLIN_F32;
          problem.compute = form % 2 != 0 ? MARLIN_COMPUTE_INT8 : MARLIN_COMPUTE_DEFAULT;
          problem.epilogue = form / 2 != 0 ? MARLIN_EPILOGUE_SWIGLU : MARLIN_EPILOGUE_NONE;
          uint64_t most = 0;
          Variants variants;
          for (int64_t m = 1; m <= 400; ++m) {
            const auto plan = must(gpu::plan_gemm(problem, m, rules));
            most = std::max(most, plan.scratch_bytes());
            variants.emplace(plan.kernel, plan.partial);
            if (m % 40 != 0 && m > 20) continue;
            const auto told = must(gpu::plan_breakpoints(problem, m, rules));
            EXPECT_LE(told.size(), 200u) << "few";
            uint64_t most_told = 0;
            Variants variants_told;
            for (const int64_t each : told) {
              EXPECT_LE(each, m);
              const auto of = must(gpu::plan_gemm(problem, each, rules));
              most_told = std::max(most_told, of.scratch_bytes());
              variants_told.emplace(of.kernel, of.partial);
            }
            EXPECT_EQ(most_told, most) << "n " << n << ", k " << k << ", form " << form << ", up to M = " << m;
            EXPECT_EQ(variants_told, variants) << "n " << n << ", k " << k << ", form " << form << ", up to M = " << m;
          }
        }
}

}  // namespace
