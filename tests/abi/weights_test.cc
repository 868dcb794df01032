// Packing, unpacking, describing and preparing, over the shared library and the CPU.
#include "kernels/guarded.h"
#include "support.h"
#include "test.h"

namespace abi_test::weights_tests {
namespace {

constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();

class Weights : public testing::Test {
 protected:
  const mm::context context{kBackend};
  const mm::weights weights = quantized(context, 10, 64);
};

TEST_F(Weights, UnpackTakesRowsByIdOrInARow) {
  std::vector<float> all(10 * 64), some(4 * 64);
  mm::unpack(weights, mm::matrix_view(all.data(), 10, 64));
  const marlin_matrix out = mm::matrix_view(some.data(), 4, 64);
  int32_t ids[] = {9, -1, 0, -1, 9, -1, 5, -1};  // every second one
  marlin_matrix row_ids = mm::matrix_view(ids, 4, 1, 2);
  EXPECT_OK(marlin_weights_unpack, nullptr, weights.get(), &row_ids, int64_t{123}, &out);
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(std::equal(&some[i * 64], &some[i * 64] + 64, &all[ids[2 * i] * 64])) << i;
  EXPECT_OK(marlin_weights_unpack, nullptr, weights.get(), nullptr, int64_t{6}, &out);
  EXPECT_TRUE(std::equal(some.begin(), some.end(), &all[6 * 64]));

  std::fill(some.begin(), some.end(), 77.0f);
  for (const int32_t bad : {-1, 10, INT32_MIN, INT32_MAX}) {
    ids[6] = bad;
    EXPECT_FAILS(MARLIN_E_ARGUMENT, "output row 3", marlin_weights_unpack, nullptr, weights.get(), &row_ids, int64_t{0}, &out);
  }
  for (const int64_t bad : {int64_t{7}, int64_t{-1}, kHuge, INT64_MIN})
    EXPECT_FAILS(MARLIN_E_ARGUMENT, "outside [0, 10)", marlin_weights_unpack, nullptr, weights.get(), nullptr, bad, &out);
  EXPECT_EQ(some, std::vector<float>(4 * 64, 77.0f));

  const auto fails = [&](const marlin_matrix* row, marlin_matrix to, marlin_status status, const char* mentioned) {
    EXPECT_FAILS(status, mentioned, marlin_weights_unpack, nullptr, weights.get(), row, int64_t{0}, &to);
  };
  row_ids.rows = 3;
  fails(&row_ids, out, MARLIN_E_SHAPE, "row_ids is [3, 1]");
  row_ids = mm::matrix_view(ids, 1, 4);
  fails(&row_ids, out, MARLIN_E_SHAPE, "row_ids is [1, 4]");
  row_ids = mm::matrix_view(reinterpret_cast<uint32_t*>(ids), 4, 1);
  fails(&row_ids, out, MARLIN_E_ARGUMENT, "row_ids.dtype");
  row_ids = mm::matrix_view(reinterpret_cast<int32_t*>(some.data()), 4, 1);
  fails(&row_ids, out, MARLIN_E_ARGUMENT, "overlaps");
  row_ids.data = nullptr;
  fails(&row_ids, out, MARLIN_E_ARGUMENT, "row_ids.data is NULL");
  fails(nullptr, mm::matrix_view(some.data(), 4, 63, 64), MARLIN_E_SHAPE, "out.cols is 63");
  fails(nullptr, mm::matrix_view(reinterpret_cast<int32_t*>(some.data()), 4, 64), MARLIN_E_ARGUMENT, "out.dtype");
  EXPECT_FAILS(MARLIN_E_ARGUMENT, "out is NULL", marlin_weights_unpack, nullptr, weights.get(), nullptr, int64_t{0}, nullptr);
  const marlin_matrix nothing = mm::matrix_view(static_cast<float*>(nullptr), 0, 64);
  EXPECT_OK(marlin_weights_unpack, nullptr, weights.get(), nullptr, int64_t{10}, &nothing);
  const marlin_matrix no_ids = mm::matrix_view(static_cast<int32_t*>(nullptr), 0, 1);
  EXPECT_OK(marlin_weights_unpack, nullptr, weights.get(), &no_ids, int64_t{0}, &nothing);
}

TEST_F(Weights, UnpackOfManyRowsGoesInChunks) {
  const mm::weights tall = quantized(context, 2500, 16);
  std::vector<float> all(2500 * 16), shuffled(2500 * 16);
  mm::unpack(tall, mm::matrix_view(all.data(), 2500, 16));
  std::vector<int32_t> ids(2500);
  for (int32_t i = 0; i < 2500; ++i) ids[i] = (i * 1777) % 2500;
  const marlin_matrix row_ids = mm::matrix_view(ids.data(), 2500, 1), out = mm::matrix_view(shuffled.data(), 2500, 16);
  EXPECT_OK(marlin_weights_unpack, nullptr, tall.get(), &row_ids, int64_t{0}, &out);
  for (int32_t i = 0; i < 2500; ++i) ASSERT_TRUE(std::equal(&shuffled[i * 16], &shuffled[i * 16] + 16, &all[ids[i] * 16])) << i;
}

TEST_F(Weights, PackRefusesWhatItDoesNotServe) {
  const std::vector<float> values = numbers(64, 3);
  marlin_pack_desc p = pack_desc(values, 2, 32);
  const marlin_pack_desc* const parts[] = {&p, nullptr};
  mm::weights w;
  EXPECT_FAILS(MARLIN_E_SHAPE, "multiple of expert_count = 2", marlin_weights_pack, context.get(), parts, 1u, 2u, w.out());
  EXPECT_OK(marlin_weights_pack, context.get(), parts, 1u, 0u, w.out());
  EXPECT_FAILS(MARLIN_E_ARGUMENT, "no parts", marlin_weights_pack, context.get(), parts, 0u, 1u, w.out());
  EXPECT_FAILS(MARLIN_E_ARGUMENT, "no parts", marlin_weights_pack, context.get(), nullptr, 1u, 1u, w.out());
  EXPECT_FAILS(MARLIN_E_ARGUMENT, "parts[1]: NULL", marlin_weights_pack, context.get(), parts, 2u, 1u, w.out());
  p.sparse_meta = p.values;
  EXPECT_FAILS(MARLIN_E_UNSUPPORTED, "sparse_meta: dtype", marlin_weights_pack, context.get(), parts, 1u, 1u, w.out());
  p.sparse_meta = {};
  p.values.data = nullptr;
  EXPECT_FAILS(MARLIN_E_ARGUMENT, "values.data is NULL", marlin_weights_pack, context.get(), parts, 1u, 1u, w.out());
}

TEST_F(Weights, AGuessAboutZerosIsToldToTheLog) {
  std::vector<std::string> lines;
  auto desc = mm::make<marlin_context_desc>();
  desc.log = [](void* user, int32_t level, const char* message) {
    static_cast<std::vector<std::string>*>(user)->push_back(std::to_string(level) + " " + message);
  };
  desc.user = &lines;
  const mm::context logging(desc);
  std::vector<uint32_t> words(8, 0u), zeros{0x7777776fu};
  std::vector<float> scales(8, 1.0f), values(64);
  auto p = mm::make<marlin_pack_desc>();
  p.format = MARLIN_FORMAT_INT4;
  p.layout = MARLIN_LAYOUT_GPTQ_V1;
  p.n = p.k = p.group_size = 8;
  p.values = {words.data(), 0, 1, 8, 0, MARLIN_U32, MARLIN_MEM_HOST};
  p.zeros = {zeros.data(), 0, 1, 1, 0, MARLIN_U32, MARLIN_MEM_HOST};
  p.scales = mm::matrix_view(scales.data(), 1, 8);
  const auto second_zero = [&] {
    const mm::weights packed = mm::pack(logging, p);
    mm::unpack(packed, mm::matrix_view(values.data(), 8, 8));
    return -values[8];
  };
  EXPECT_EQ(second_zero(), 7.0f);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0].substr(0, 2), "2 ");
  EXPECT_PRED2(contains, lines[0], "gptq_zero_f");
  p.gptq_zero_f = MARLIN_GPTQ_ZERO_F_CARRY;
  EXPECT_EQ(second_zero(), 8.0f);
  EXPECT_EQ(lines.size(), 1u) << "nothing was guessed";
}

TEST_F(Weights, CodesAndScalesComeFromStridedAlignedMemory) {
  // Two rows of 32 codes, 20 bytes apart: row 0 is all 9s, row 1 all 6s. Scales 0.5 and 2: (9 - 8) / 2 and (6 - 8) * 2.
  std::vector<uint8_t> codes(40, 0x99);
  std::fill(codes.begin() + 20, codes.end(), uint8_t{0x66});
  alignas(4) uint8_t scale_bytes[8] = {0, 0x38, 0xff, 0xff, 0, 0x40, 0xff, 0xff};
  auto p = mm::make<marlin_pack_desc>();
  p.format = MARLIN_FORMAT_INT4;
  p.n = 2;
  p.k = 32;
  p.values = mm::matrix_view(codes.data(), 2, 16, 20);
  p.scales = mm::matrix_view(reinterpret_cast<mm::f16*>(scale_bytes), 2, 1, 2);
  const mm::weights packed = mm::pack(context, p);
  std::vector<float> values(64);
  mm::unpack(packed, mm::matrix_view(values.data(), 2, 32));
  for (int k = 0; k < 32; ++k) {
    EXPECT_EQ(values[k], 0.5f);
    EXPECT_EQ(values[32 + k], -4.0f);
  }
  const marlin_pack_desc* const parts[] = {&p};
  mm::weights none;

  // The same as nibbles, of which each row has whole bytes.
  const marlin_matrix bytes = p.values;
  p.values.dtype = MARLIN_U4;
  p.values.cols = 32, p.values.row_stride = 40;
  std::vector<float> again(64);
  mm::unpack(mm::pack(context, p), mm::matrix_view(again.data(), 2, 32));
  EXPECT_EQ(again, values);
  p.values.cols = 31;
  EXPECT_FAILS(MARLIN_E_SHAPE, "U4 [2, 31] of stride 40, expected even", marlin_weights_pack, context.get(), parts, 1u, 1u,
               none.out());
  p.values.cols = 32, p.values.row_stride = 41;
  EXPECT_FAILS(MARLIN_E_SHAPE, "U4 [2, 32] of stride 41, expected even", marlin_weights_pack, context.get(), parts, 1u, 1u,
               none.out());
  p.values = bytes;
  p.scales.offset_bytes = 1;
  EXPECT_FAILS(MARLIN_E_ARGUMENT, "scales is at", marlin_weights_pack, context.get(), parts, 1u, 1u, none.out());
  p.scales.offset_bytes = 0;
  p.scales.rows = 3;
  EXPECT_FAILS(MARLIN_E_SHAPE, "scales", marlin_weights_pack, context.get(), parts, 1u, 1u, none.out());
  p.scales.data = nullptr;
  EXPECT_FAILS(MARLIN_E_ARGUMENT, "scales", marlin_weights_pack, context.get(), parts, 1u, 1u, none.out());

  int32_t ids[3] = {};
  const marlin_matrix odd = mm::matrix_view(reinterpret_cast<int32_t*>(reinterpret_cast<char*>(ids) + 2), 2, 1);
  const marlin_matrix out = mm::matrix_view(values.data(), 2, 32);
  EXPECT_FAILS(MARLIN_E_ARGUMENT, "row_ids is at", marlin_weights_unpack, nullptr, packed.get(), &odd, int64_t{0}, &out);
}

TEST_F(Weights, PartsStandOneBelowTheOther) {
  const std::vector<float> upper = numbers(3 * 64, 21), lower = numbers(5 * 64, 22);
  const marlin_pack_desc first = pack_desc(upper, 3, 64), second = pack_desc(lower, 5, 64);
  const marlin_pack_desc* const parts[] = {&first, &second};
  mm::weights both;
  EXPECT_OK(marlin_weights_pack, context.get(), parts, 2u, 1u, both.out());
  std::vector<float> together(8 * 64), alone(5 * 64);
  mm::unpack(both, mm::matrix_view(together.data(), 8, 64));
  mm::unpack(mm::pack(context, first), mm::matrix_view(alone.data(), 3, 64));
  EXPECT_TRUE(std::equal(together.begin(), together.begin() + 3 * 64, alone.begin()));
  mm::unpack(mm::pack(context, second), mm::matrix_view(alone.data(), 5, 64));
  EXPECT_TRUE(std::equal(together.begin() + 3 * 64, together.end(), alone.begin()));
  const marlin_pack_desc other_format = pack_desc(lower, 5, 64, MARLIN_FORMAT_MXFP4), other_k = pack_desc(lower, 10, 32);
  for (const marlin_pack_desc* different : {&other_format, &other_k}) {
    const marlin_pack_desc* const pair[] = {&first, different};
    EXPECT_FAILS(MARLIN_E_SHAPE, "", marlin_weights_pack, context.get(), pair, 2u, 1u, both.out());
  }
}

TEST_F(Weights, InfoDescribesWeights) {
  const marlin_layer_info info = mm::info(weights);
  EXPECT_EQ(info.status, MARLIN_OK);
  EXPECT_STREQ(info.name, "");
  EXPECT_EQ(info.n, 10);
  EXPECT_EQ(info.k, 64);
  EXPECT_EQ(info.experts, 1u);
  EXPECT_EQ(info.group_size, 32u);
  EXPECT_EQ(info.format, MARLIN_FORMAT_INT4);
  EXPECT_EQ(info.dtype, MARLIN_F16);
  EXPECT_GT(info.bytes, 10u * 64 / 2);
}

TEST_F(Weights, ExplainTellsTheScratchThatPrepareReserves) {
  if (!kOnCpu) GTEST_SKIP() << "a GPU rounds its scratch otherwise";
  const mm::weights w = quantized(context, 128, 64);
  for (const marlin_epilogue epilogue : {MARLIN_EPILOGUE_NONE, MARLIN_EPILOGUE_SWIGLU})
    for (const int64_t m : {1, 40}) {
      auto d = mm::make<marlin_gemm_desc>();
      d.weights = w.get();
      d.a = mm::matrix_view(static_cast<float*>(nullptr), m, 64);
      d.c = mm::matrix_view(static_cast<float*>(nullptr), m, epilogue == MARLIN_EPILOGUE_NONE ? 128 : 64);
      d.epilogue = epilogue;
      const marlin_gemm_desc* const descs[] = {&d};
      uint64_t least = 0, most = 0;
      EXPECT_OK(marlin_prepare, nullptr, descs, 1u, m, &most);
      const std::string text = mm::explain(d), label = "scratch_bytes: ";
      const size_t at = text.find(label);
      ASSERT_NE(at, std::string::npos) << text;
      least = std::stoull(text.substr(at + label.size()));
      EXPECT_GE(most, least) << text;  // for fewer rows a kernel may need more
      EXPECT_GT(least, 0u);
      const uint64_t results = epilogue == MARLIN_EPILOGUE_NONE ? 0 : static_cast<uint64_t>(m) * 128 * sizeof(float);
      EXPECT_GE(least, results) << "gate and up are kept until both are there: " << text;
      EXPECT_LT(least, uint64_t{1} << 20) << text;
    }
}

/// By the portable kernels, too, whatever this processor has.
TEST_F(Weights, ATensorScaleMultipliesOrDivides) {
  const char* const set = getenv("METAL_MARLIN_ISA");
  const std::string before = set != nullptr ? set : "";
  std::vector<uint8_t> codes(10 * 32), scales(10 * 4, 0x38);  // 1 in E4M3
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint8_t>(37 * i);
  float tensor_scale = 3;
  auto p = mm::make<marlin_pack_desc>();
  p.format = MARLIN_FORMAT_NVFP4;
  p.n = 10;
  p.k = 64;
  p.values = mm::matrix_view(codes.data(), 10, 32);
  p.scales = mm::matrix_view(scales.data(), 10, 4);
  p.tensor_scale = mm::matrix_view(&tensor_scale, 1, 1);
  for (const char* const isa : {"generic", static_cast<const char*>(nullptr)}) {
    isa != nullptr ? setenv("METAL_MARLIN_ISA", isa, 1) : unsetenv("METAL_MARLIN_ISA");
    const mm::context fresh{kBackend};
    for (const uint32_t flags : {0u, MARLIN_PACK_DIVIDE_SCALE}) {
      p.flags = flags;
      const mm::weights w = mm::pack(fresh, p);
      std::vector<float> row(64);
      mm::unpack(w, mm::matrix_view(row.data(), 1, 64));
      EXPECT_EQ(row[2], flags != 0 ? 3.0f / 3 : 9.0f) << "code 5 is 3";
      Product product(w, 3);
      EXPECT_OK(marlin_gemm, nullptr, &product.desc);
      EXPECT_TRUE(product.right()) << (isa != nullptr ? isa : "native") << ", flags " << flags;
    }
  }
  set != nullptr ? setenv("METAL_MARLIN_ISA", before.c_str(), 1) : unsetenv("METAL_MARLIN_ISA");
}

TEST_F(Weights, PrepareThenScratchOfTheHostSuffices) {
  if (!kOnCpu) GTEST_SKIP() << "a GPU takes neither scratch nor operands of the host's memory on a stream";
  const mm::weights w = quantized(context, 130, 256);
  for (const marlin_compute compute : {MARLIN_COMPUTE_DEFAULT, MARLIN_COMPUTE_INT8})
    for (const int64_t m : {1, 5, 40}) {
      Product p(w, m);
      p.desc.compute = compute;
      const marlin_gemm_desc* const descs[] = {&p.desc};
      uint64_t bytes = 0;
      EXPECT_OK(marlin_prepare, nullptr, descs, 1u, int64_t{40}, &bytes);
      EXPECT_OK(marlin_gemm, nullptr, &p.desc);
      const std::vector<float> expected = p.c;
      for (const uint64_t misalign : {0, 1, 63}) {
        const guarded::Memory memory(bytes + misalign, guarded::Edge::end);
        auto d = mm::make<marlin_stream_desc>();
        d.scratch = {memory.data() + misalign, 0, 1, static_cast<int64_t>(bytes), 0, MARLIN_U8, MARLIN_MEM_HOST};
        if (bytes == 0) d.scratch = {};
        mm::stream stream(context, d);
        std::fill(p.c.begin(), p.c.end(), 0.0f);
        EXPECT_OK(marlin_gemm, stream.get(), &p.desc);
        EXPECT_EQ(p.c, expected);
      }
    }
}

TEST_F(Weights, ScratchOfTheHostThatIsTooSmallIsNotPrepared) {
  if (!kOnCpu) GTEST_SKIP() << "a GPU takes neither scratch nor operands of the host's memory on a stream";
  const mm::weights w = quantized(context, 130, 256);
  Product one(w, 1), many(w, 40);
  one.desc.compute = many.desc.compute = MARLIN_COMPUTE_INT8;
  const uint64_t for_one = mm::prepare({one.desc}, 1), for_many = mm::prepare({many.desc}, 40);
  ASSERT_LT(for_one, for_many);
  const guarded::Memory memory(for_many, guarded::Edge::end);
  auto d = mm::make<marlin_stream_desc>();
  d.scratch = {memory.data(), 0, 1, static_cast<int64_t>(for_one), 0, MARLIN_U8, MARLIN_MEM_HOST};
  const mm::stream small(context, d);
  EXPECT_OK(marlin_gemm, small.get(), &one.desc);
  EXPECT_FAILS(MARLIN_E_NOT_PREPARED, "these products need", marlin_gemm, small.get(), &many.desc);
  EXPECT_EQ(many.c, std::vector<float>(many.c.size(), 77.0f));
  EXPECT_OK(marlin_gemm, small.get(), &one.desc);  // the stream goes on
  d.scratch.cols = static_cast<int64_t>(for_many);
  const mm::stream large(context, d);
  EXPECT_OK(marlin_gemm, large.get(), &many.desc);
}

}  // namespace
}  // namespace abi_test::weights_tests
