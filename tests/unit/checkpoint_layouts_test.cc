// Operands given by pointer, in every layout: worked examples by hand, odd bytes, act-order, strides, and what is refused.
#include "checkpoint_operands.h"
#include "fails.h"
#include "formats/codecs.h"
#include "test.h"

namespace metal_marlin::testing {
namespace {

// --- GPTQ -------------------------------------------------------------------------------------------------------------

TEST(CheckpointGptq, V1StoresZeroMinusOne) {
  const Operand q("values", MARLIN_U32, {1, 1}, std::vector<uint32_t>{0x76543210u});
  const Operand s("scales", MARLIN_F16, {1, 1}, std::vector<uint16_t>{kHalf});
  const Operand z("zeros", MARLIN_I32, {1, 1}, std::vector<uint32_t>{7u});
  LayoutOperands o = operands(MARLIN_LAYOUT_GPTQ_V1, MARLIN_FORMAT_INT4, 1, 8, 8, q, s, z);
  EXPECT_EQ(decode(o), (std::vector<float>{-4.0f, -3.5f, -3.0f, -2.5f, -2.0f, -1.5f, -1.0f, -0.5f}));
  o.layout = MARLIN_LAYOUT_GPTQ_V2;
  EXPECT_EQ(decode(o)[0], -3.5f);
  o.zeros = {};
  EXPECT_EQ(decode(o)[0], -4.0f) << "absent zeros are 8";
}

/// Zeros of the eight columns of one word of GPTQ v1, read in three ways.
struct ZeroReading {
  uint32_t word;
  int wrap[8], carry[8], sixteen[8];
};
constexpr ZeroReading kReadings[] = {
    {0x76543210u, {1, 2, 3, 4, 5, 6, 7, 8}, {1, 2, 3, 4, 5, 6, 7, 8}, {1, 2, 3, 4, 5, 6, 7, 8}},
    // Zeros 0, 8, 8, ... as GPTQModel writes them: taking 1 from nibble 0 borrowed from nibble 1.
    {0x7777776fu, {0, 7, 8, 8, 8, 8, 8, 8}, {0, 8, 8, 8, 8, 8, 8, 8}, {16, 7, 8, 8, 8, 8, 8, 8}},
    {0xf7777777u, {8, 8, 8, 8, 8, 8, 8, 0}, {8, 8, 8, 8, 8, 8, 8, 0}, {8, 8, 8, 8, 8, 8, 8, 16}},
    {0xffffffffu, {0, 0, 0, 0, 0, 0, 0, 0}, {0, 1, 1, 1, 1, 1, 1, 1}, {16, 16, 16, 16, 16, 16, 16, 16}},
};

TEST(CheckpointGptq, V1NibbleFifteenHasThreeReadings) {
  const Operand q("values", MARLIN_U32, {1, 8}, std::vector<uint32_t>(8, 0));
  const Operand s("scales", MARLIN_F16, {1, 8}, std::vector<uint16_t>(8, kOne));
  for (const ZeroReading& r : kReadings) {
    const Operand z("zeros", MARLIN_I32, {1, 1}, std::vector<uint32_t>{r.word});
    LayoutOperands o = operands(MARLIN_LAYOUT_GPTQ_V1, MARLIN_FORMAT_INT4, 8, 8, 8, q, s, z);
    const std::pair<marlin_gptq_zero_f, const int*> readings[] = {{MARLIN_GPTQ_ZERO_F_AUTO, r.wrap},
                                                                  {MARLIN_GPTQ_ZERO_F_WRAP, r.wrap},
                                                                  {MARLIN_GPTQ_ZERO_F_CARRY, r.carry},
                                                                  {MARLIN_GPTQ_ZERO_F_PLUS_ONE, r.sixteen}};
    const bool has_15 = r.word != 0x76543210u;
    for (const auto& [reading, zeros] : readings) {
      o.zero_f = reading;
      const auto values = decode(o);
      ASSERT_EQ(values.size(), 64u);
      for (size_t n = 0; n < 8; ++n)
        EXPECT_EQ(values[8 * n], static_cast<float>(-zeros[n])) << r.word << " " << reading << " " << n;
      const std::string warning = make_source(o).value()->warning();
      if (reading == MARLIN_GPTQ_ZERO_F_AUTO && has_15) {
        EXPECT_THAT(warning, HasSubstr("zeros: group 0, column "));
      } else {
        EXPECT_EQ(warning, "");
      }
    }
    o.layout = MARLIN_LAYOUT_GPTQ_V2;
    EXPECT_EQ(error_of(o).code(), MARLIN_E_ARGUMENT) << "v2 has no such zeros";
    o.zero_f = MARLIN_GPTQ_ZERO_F_AUTO;
    EXPECT_EQ(make_source(o).value()->warning(), "");
  }
}

TEST(CheckpointGptq, NibblesBehindTheLastColumnAreNoZeros) {
  const Operand q("values", MARLIN_U32, {1, 3}, std::vector<uint32_t>(3, 0)),
      z("zeros", MARLIN_I32, {1, 1}, std::vector<uint32_t>{0xfffff777u}),
      s("scales", MARLIN_F16, {1, 3}, std::vector<uint16_t>(3, kOne));
  LayoutOperands o = operands(MARLIN_LAYOUT_GPTQ_V1, MARLIN_FORMAT_INT4, 3, 8, 8, q, s, z);
  EXPECT_EQ(make_source(o).value()->warning(), "");
}

TEST(CheckpointGptq, TheQuantizerOfTheConfigChoosesTheReading) {
  struct Row {
    const char* meta;
    marlin_gptq_zero_f chosen;
    float second;  // of the row of zeros below
    bool warns;
  };
  constexpr Row kRows[] = {
      {R"({"quantizer":["gptqmodel:2.0.0"]})", MARLIN_GPTQ_ZERO_F_AUTO, -8, false},
      {R"({"quantizer":"GPTQModel:1.4"})", MARLIN_GPTQ_ZERO_F_AUTO, -8, false},
      {R"({"quantizer":["auto_gptq:0.7.1","x"]})", MARLIN_GPTQ_ZERO_F_AUTO, -7, false},
      {R"({"quantizer":"someone"})", MARLIN_GPTQ_ZERO_F_AUTO, -7, true},
      {R"({"quantizer":[]})", MARLIN_GPTQ_ZERO_F_AUTO, -7, true},
      {R"([1,"quantizer"])", MARLIN_GPTQ_ZERO_F_AUTO, -7, true},
      {"{}", MARLIN_GPTQ_ZERO_F_CARRY, -8, false},
      {R"({"quantizer":"gptqmodel"})", MARLIN_GPTQ_ZERO_F_WRAP, -7, false},
  };
  const std::string file = safetensors({{"l.qweight", "I32", "1,8", std::string(32, '\0')},
                                        {"l.qzeros", "I32", "1,1", bytes_of<uint32_t>({0x7777776fu})},
                                        {"l.scales", "F32", "1,8", bytes_of<float>({1, 1, 1, 1, 1, 1, 1, 1})}});
  for (const Row& row : kRows) {
    SCOPED_TRACE(row.meta);
    const std::string config =
        std::string(R"({"quantization_config":{"quant_method":"gptq","bits":4,"meta":)") + row.meta + "}}";
    auto folder = std::make_unique<MemoryFolder>();
    folder->add("f.safetensors", file);
    folder->add("config.json", config);
    const auto opened = must(open_checkpoint(std::move(folder), "f.safetensors", MARLIN_LAYOUT_AUTO, row.chosen));
    const auto source = must(opened->source(0, 0, {}));
    EXPECT_EQ(decode_all(*source).value()[8], row.second);
    EXPECT_EQ(!source->warning().empty(), row.warns) << source->warning();
    if (row.warns) {
      EXPECT_THAT(source->warning(), HasSubstr("tensor 'l.qzeros'"));
    }
  }
}

TEST(CheckpointGptq, PlainGroupIndexIsDropped) {
  const std::vector<int32_t> plain{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1};
  const Operand q("values", MARLIN_U32, {3, 1}, std::vector<uint32_t>{1, 2, 3}),
      s("scales", MARLIN_F16, {2, 1}, std::vector<uint16_t>{kOne, kHalf});
  LayoutOperands o = operands(MARLIN_LAYOUT_GPTQ_V2, MARLIN_FORMAT_INT4, 1, 24, 16, q, s);
  const Operand g("group_index", MARLIN_I32, {24}, plain);
  o.group_index = g.view;
  EXPECT_TRUE(make_source(o).value()->meta().group_index.empty());

  auto bad = plain;
  bad[20] = 2;
  const Operand high("group_index", MARLIN_I32, {24}, bad);
  o.group_index = high.view;
  EXPECT_THAT(error_of(o), Fails(MARLIN_E_FORMAT, HasSubstr("entry 20")));
  bad[20] = -1;
  const Operand low("group_index", MARLIN_I32, {24}, bad);
  o.group_index = low.view;
  EXPECT_EQ(error_of(o).code(), MARLIN_E_FORMAT);
  const Operand shorter("group_index", MARLIN_I32, {23}, plain);
  o.group_index = shorter.view;
  EXPECT_EQ(error_of(o).code(), MARLIN_E_SHAPE);
}

// --- AWQ --------------------------------------------------------------------------------------------------------------

TEST(CheckpointAwq, InterleavedNibbles) {
  const Operand q("values", MARLIN_I32, {1, 1}, std::vector<uint32_t>{0x75316420u});
  const Operand s("scales", MARLIN_F16, {1, 8}, std::vector<uint16_t>(8, kOne));
  const Operand z("zeros", MARLIN_I32, {1, 1}, std::vector<uint32_t>{0});
  LayoutOperands o = operands(MARLIN_LAYOUT_AWQ, MARLIN_FORMAT_INT4, 8, 1, 1, q, s, z);
  EXPECT_EQ(decode(o), (std::vector<float>{0, 1, 2, 3, 4, 5, 6, 7}));
  const Operand z1("zeros", MARLIN_I32, {1, 1}, std::vector<uint32_t>{0x75316420u});
  o.zeros = z1.view;
  EXPECT_EQ(decode(o), std::vector<float>(8, 0.0f)) << "zeros are in the same order";
}

TEST(CheckpointAwq, AnyRowsOfAnyShape) {
  constexpr int kNibbleOf[8] = {0, 4, 1, 5, 2, 6, 3, 7};
  std::mt19937 random(3);
  for (const int64_t n : {8, 24, 40}) {
    for (const int64_t k : {1, 8, 13, 21}) {
      std::vector<uint32_t> words(static_cast<size_t>(k * n / 8));
      for (auto& w : words) w = static_cast<uint32_t>(random());
      const Operand q("values", MARLIN_U32, {k, n / 8}, words),
          s("scales", MARLIN_F16, {1, n}, std::vector<uint16_t>(static_cast<size_t>(n), kOne)),
          z("zeros", MARLIN_U32, {1, n / 8}, std::vector<uint32_t>(static_cast<size_t>(n / 8), 0u));
      LayoutOperands o = operands(MARLIN_LAYOUT_AWQ, MARLIN_FORMAT_INT4, n, k, k, q, s, z);
      const auto source = must(make_source(o));
      Stripe stripe;
      for (int64_t first = 0; first < n; first += 5) {
        const int64_t count = std::min<int64_t>(11, n - first);
        ASSERT_TRUE(source->read(first, count, stripe).ok());
        for (int64_t r = 0; r < count; ++r) {
          for (int64_t c = 0; c < k; ++c) {
            const int64_t column = first + r;
            const uint32_t expected = words[static_cast<size_t>(c * (n / 8) + column / 8)] >> 4 * kNibbleOf[column % 8] & 15;
            ASSERT_EQ(stripe.codes[static_cast<size_t>(r * k + c)], expected) << n << " " << k << " " << column << " " << c;
          }
        }
      }
    }
  }
}

// --- rows: MXFP4, NVFP4, INT8, zeros ------------------------------------------------------------------------------------

TEST(CheckpointRows, Mxfp4) {
  std::vector<uint8_t> bytes(16, 0);
  bytes[0] = 0x72;
  const Operand q("values", MARLIN_U8, {1, 16}, bytes), s("scales", MARLIN_U8, {1, 1}, std::vector<uint8_t>{0x80});
  LayoutOperands o = operands(MARLIN_LAYOUT_ROWS, MARLIN_FORMAT_MXFP4, 1, 32, 0, q, s);
  EXPECT_EQ(decode(o)[0], 2.0f);
  EXPECT_EQ(decode(o)[1], 12.0f);
  const Operand nan("scales", MARLIN_E8M0, {1, 1}, std::vector<uint8_t>{0xff});
  o.scales = nan.view;
  EXPECT_TRUE(std::isnan(decode(o)[1])) << "0xFF is NaN (OCP MX v1.0)";
  const Operand tiny("scales", MARLIN_E8M0, {1, 1}, std::vector<uint8_t>{0});
  o.scales = tiny.view;
  EXPECT_EQ(decode(o)[0], 0x1p-127f);
}

TEST(CheckpointRows, Nvfp4MultipliesOrDivides) {
  std::vector<uint8_t> bytes(8, 0);
  bytes[0] = 0x72;
  const Operand q("values", MARLIN_U8, {1, 8}, bytes), s("scales", MARLIN_E4M3, {1, 1}, std::vector<uint8_t>{0x7e});
  LayoutOperands o = operands(MARLIN_LAYOUT_ROWS, MARLIN_FORMAT_NVFP4, 1, 16, 0, q, s);
  const Operand multiply("tensor_scale", MARLIN_F32, {1, 1}, std::vector<float>{12.0f / 2688.0f});
  o.tensor_scale = multiply.view;
  EXPECT_FLOAT_EQ(decode(o)[0], 2.0f);
  EXPECT_FLOAT_EQ(decode(o)[1], 12.0f);
  const Operand divide("tensor_scale", MARLIN_F32, {}, std::vector<float>{224.0f});
  o.tensor_scale = divide.view;
  o.flags = MARLIN_PACK_DIVIDE_SCALE;
  EXPECT_EQ(decode(o)[0], 2.0f);
  EXPECT_EQ(decode(o)[1], 12.0f);
}

TEST(CheckpointRows, StridesOddKAndU4) {
  // Two rows of 3 codes, 4 bytes apart; the spare nibble and bytes are noise.
  const Operand q("values", MARLIN_U8, {2, 2}, std::vector<uint8_t>{0x21, 0xf3, 0xee, 0xee, 0x54, 0xf6, 0xee, 0xee});
  const Operand s("scales", MARLIN_F32, {2, 1}, std::vector<float>{1.0f, 99.0f, 2.0f});
  LayoutOperands o = operands(MARLIN_LAYOUT_ROWS, MARLIN_FORMAT_INT4, 2, 3, 0, q, s);
  o.values.row_stride = 4;
  o.scales.row_stride = 2;
  const std::vector<float> expected{-7, -6, -5, -8, -6, -4};
  EXPECT_EQ(decode(o), expected);
  o.values.dtype = MARLIN_U4;
  o.values.dims = {2, 4};
  o.values.row_stride = 8;
  EXPECT_EQ(decode(o), expected);
  o.values.row_stride = 7;
  EXPECT_EQ(error_of(o).code(), MARLIN_E_ARGUMENT);
}

TEST(CheckpointRows, Zeros) {
  const Operand q("values", MARLIN_U8, {1, 1}, std::vector<uint8_t>{0xf0}),
      s("scales", MARLIN_BF16, {1, 1}, std::vector<uint16_t>{0x4000});
  LayoutOperands o = operands(MARLIN_LAYOUT_ROWS, MARLIN_FORMAT_INT4, 1, 2, 0, q, s);
  const Operand integer("zeros", MARLIN_U8, {1, 1}, std::vector<uint8_t>{3});
  o.zeros = integer.view;
  EXPECT_EQ(decode(o), (std::vector<float>{-6, 24}));
  const Operand large("zeros", MARLIN_U8, {1, 1}, std::vector<uint8_t>{16});
  o.zeros = large.view;
  EXPECT_EQ(error_of(o).code(), MARLIN_E_FORMAT);
  const Operand additive("zeros", MARLIN_F32, {1, 1}, std::vector<float>{-0.25f});
  o.zeros = additive.view;
  EXPECT_EQ(error_of(o).code(), MARLIN_E_UNSUPPORTED) << "floats need the flag";
  o.flags = MARLIN_PACK_ADDITIVE_ZEROS;
  EXPECT_EQ(decode(o), (std::vector<float>{-0.25f, 29.75f}));
  o.zeros = {};
  EXPECT_EQ(error_of(o).code(), MARLIN_E_ARGUMENT);
}

TEST(CheckpointRows, Int8) {
  const Operand q("values", MARLIN_I8, {1, 3}, std::vector<int8_t>{-128, 0, 127}),
      s("scales", MARLIN_F16, {1, 1}, std::vector<uint16_t>{kHalf});
  LayoutOperands o = operands(MARLIN_LAYOUT_ROWS, MARLIN_FORMAT_INT8, 1, 3, 0, q, s);
  EXPECT_EQ(decode(o), (std::vector<float>{-64, 0, 63.5f}));
}

TEST(CheckpointK8n, AllFormatsAndPlainZeros) {
  const Operand q("values", MARLIN_U32, {4, 1}, std::vector<uint32_t>{0x76543210u, 0xfedcba98u, 0, 0});
  const Operand e("scales", MARLIN_E8M0, {1, 1}, std::vector<uint8_t>{128}),
      h("scales", MARLIN_F16, {1, 1}, std::vector<uint16_t>{kHalf}),
      b("scales", MARLIN_E4M3, {2, 1}, std::vector<uint8_t>{0x38, 0x30});
  LayoutOperands o = operands(MARLIN_LAYOUT_K8N, MARLIN_FORMAT_MXFP4, 1, 32, 0, q, e);
  EXPECT_EQ(decode(o)[7], 12.0f);
  EXPECT_EQ(decode(o)[15], -12.0f);
  o.format = MARLIN_FORMAT_NVFP4;
  o.scales = b.view;
  EXPECT_EQ(decode(o)[7], 6.0f);
  o.format = MARLIN_FORMAT_FP4;
  o.scales = h.view;
  EXPECT_EQ(decode(o)[7], 3.0f);
  o.format = MARLIN_FORMAT_INT4;
  EXPECT_EQ(decode(o)[0], -4.0f);
  const Operand z("zeros", MARLIN_U8, {1, 1}, std::vector<uint8_t>{1});
  o.zeros = z.view;
  EXPECT_EQ(decode(o)[0], -0.5f);
  const Operand a("zeros", MARLIN_F16, {1, 1}, std::vector<uint16_t>{kOne});
  o.zeros = a.view;
  o.flags = MARLIN_PACK_ADDITIVE_ZEROS;
  EXPECT_EQ(decode(o)[15], 8.5f);
  o.format = MARLIN_FORMAT_INT8;
  o.flags = 0;
  o.zeros = {};
  EXPECT_EQ(error_of(o).code(), MARLIN_E_UNSUPPORTED);
}

// --- GGUF -------------------------------------------------------------------------------------------------------------

TEST(CheckpointGguf, IntegerBlocks) {
  const Operand q40("values", MARLIN_U8, {1, 18}, block({0x00, 0x38, 0xf3}, 18));
  LayoutOperands o = operands(MARLIN_LAYOUT_GGUF, MARLIN_FORMAT_INT4, 1, 32, 0, q40);
  EXPECT_EQ(decode(o)[0], -2.5f);
  EXPECT_EQ(decode(o)[16], 3.5f);
  const Operand q41("values", MARLIN_U8, {1, 20}, block({0x00, 0x38, 0x00, 0xbc, 0xf3}, 20));
  o = operands(MARLIN_LAYOUT_GGUF, MARLIN_FORMAT_INT4, 1, 32, 0, q41);
  o.flags = MARLIN_PACK_ADDITIVE_ZEROS;
  EXPECT_EQ(decode(o)[0], 0.5f);
  EXPECT_EQ(decode(o)[16], 6.5f);
  EXPECT_EQ(decode(o)[1], -1.0f);
  const Operand q80("values", MARLIN_U8, {1, 34}, block({0x00, 0x38, 0x80, 0x7f}, 34));
  o = operands(MARLIN_LAYOUT_GGUF, MARLIN_FORMAT_INT8, 1, 32, 0, q80);
  EXPECT_EQ(decode(o)[0], -64.0f);
  EXPECT_EQ(decode(o)[1], 63.5f);
}

TEST(CheckpointGguf, Mxfp4KeepsNoNegativeZeroAndNoByte255) {
  const Operand q("values", MARLIN_U8, {1, 17}, block({0x80, 0x72, 0x89}, 17));
  LayoutOperands o = operands(MARLIN_LAYOUT_GGUF, MARLIN_FORMAT_MXFP4, 1, 32, 0, q);
  const auto values = decode(o);
  EXPECT_EQ(values[0], 2.0f);
  EXPECT_EQ(values[16], 12.0f);
  EXPECT_EQ(values[1], -1.0f);
  EXPECT_EQ(values[17], 0.0f);
  EXPECT_FALSE(std::signbit(values[17])) << "ggml's table holds integers";
  const Operand bad("values", MARLIN_U8, {1, 17}, block({0xff, 0x72}, 17));
  o.values = bad.view;
  EXPECT_EQ(error_of(o).code(), MARLIN_E_FORMAT);
}

TEST(CheckpointGguf, Nvfp4ScaleBytes) {
  // One block, four groups: 1.0; 0x7F is 0; bit 7 is ignored; 0xFF is 480, which no E4M3 is.
  std::vector<uint8_t> bytes(36, 0);
  bytes[0] = 0x38;
  bytes[1] = 0x7f;
  bytes[2] = 0xb8;
  bytes[3] = 0x01;
  for (int g = 0; g < 4; ++g) bytes[static_cast<size_t>(4 + 8 * g)] = 0x72;
  const Operand q("values", MARLIN_U8, {1, 36}, bytes);
  LayoutOperands o = operands(MARLIN_LAYOUT_GGUF, MARLIN_FORMAT_NVFP4, 1, 64, 0, q);
  auto values = decode(o);
  EXPECT_EQ(make_source(o).value()->meta().scale_type, ScaleType::e4m3);
  EXPECT_EQ(values[0], 1.0f);
  EXPECT_EQ(values[8], 6.0f) << "the high nibble is 8 elements on";
  EXPECT_EQ(values[16], 0.0f);
  EXPECT_EQ(values[32], 1.0f);
  EXPECT_EQ(values[48], 0x1p-9f);
  bytes[3] = 0xff;
  const Operand odd("values", MARLIN_U8, {1, 36}, bytes);
  o.values = odd.view;
  values = decode(o);
  EXPECT_EQ(make_source(o).value()->meta().scale_type, ScaleType::f16);
  EXPECT_EQ(values[0], 1.0f);
  EXPECT_EQ(values[16], 0.0f);
  EXPECT_EQ(values[32], 1.0f);
  EXPECT_EQ(values[48], 480.0f);
}

TEST(CheckpointGguf, EveryNvfp4ScaleByteMeansTheSameInBothTypes) {
  for (int b = 0; b < 255; ++b) {
    std::vector<uint8_t> bytes(72, 0x22);
    std::fill(bytes.begin(), bytes.begin() + 4, static_cast<uint8_t>(b));
    std::fill(bytes.begin() + 36, bytes.begin() + 40, uint8_t{0xff});  // forces float16
    const Operand narrow("values", MARLIN_U8, {1, 36}, std::vector<uint8_t>(bytes.begin(), bytes.begin() + 36));
    const Operand wide("values", MARLIN_U8, {1, 72}, bytes);
    const float expected = b % 128 == 127 ? 0.0f : e4m3_to_f32(static_cast<uint8_t>(b & 127));
    EXPECT_EQ(decode(operands(MARLIN_LAYOUT_GGUF, MARLIN_FORMAT_NVFP4, 1, 64, 0, narrow))[0], expected) << b;
    EXPECT_EQ(decode(operands(MARLIN_LAYOUT_GGUF, MARLIN_FORMAT_NVFP4, 1, 128, 0, wide))[0], expected) << b;
  }
}

TEST(CheckpointGguf, Refused) {
  const Operand q("values", MARLIN_U8, {1, 18}, block({0}, 18));
  LayoutOperands o = operands(MARLIN_LAYOUT_GGUF, MARLIN_FORMAT_INT4, 1, 32, 0, q);
  o.k = 31;
  EXPECT_EQ(error_of(o).code(), MARLIN_E_SHAPE);
  o.k = 64;
  EXPECT_EQ(error_of(o).code(), MARLIN_E_SHAPE);
  o.k = 32;
  o.format = MARLIN_FORMAT_FP4;
  EXPECT_EQ(error_of(o).code(), MARLIN_E_UNSUPPORTED);
  o.format = MARLIN_FORMAT_INT4;
  o.scales = q.view;
  EXPECT_EQ(error_of(o).code(), MARLIN_E_ARGUMENT) << "the blocks hold the scales";
}

// --- floats, and what is refused ----------------------------------------------------------------------------------------

TEST(CheckpointFloats, AreQuantized) {
  std::vector<float> values(3 * 40);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 40 % 15) - 7.0f;
  const Operand v("values", MARLIN_F32, {3, 33}, values);
  LayoutOperands o = operands(MARLIN_LAYOUT_AUTO, MARLIN_FORMAT_INT4, 3, 33, 0, v);
  o.values.row_stride = 40;
  const auto found = decode(o);
  ASSERT_EQ(found.size(), 99u);
  for (size_t r = 0; r < 3; ++r) {
    for (size_t c = 0; c < 33; ++c) EXPECT_NEAR(found[r * 33 + c], values[r * 40 + c], 1e-3);
  }
  o.layout = MARLIN_LAYOUT_AWQ;
  EXPECT_EQ(error_of(o).code(), MARLIN_E_ARGUMENT);
  o.layout = MARLIN_LAYOUT_ROWS;
  o.flags = MARLIN_PACK_PRUNE_2_4;
  EXPECT_EQ(error_of(o).code(), MARLIN_E_SHAPE) << "33 is no multiple of 4";
  o.flags = MARLIN_PACK_GATE_UP_INTERLEAVED;
  EXPECT_EQ(error_of(o).code(), MARLIN_E_SHAPE) << "three rows are no pairs";
  o.n = 2;
  o.values.dims[0] = 2;
  EXPECT_TRUE(make_source(o).value()->meta().gate_up_interleaved);
  o.scales = v.view;
  EXPECT_EQ(error_of(o).code(), MARLIN_E_ARGUMENT);
}

TEST(CheckpointSource, WhatIsRefused) {
  const Operand q("values", MARLIN_U8, {2, 16}, std::vector<uint8_t>(32, 0)),
      s("scales", MARLIN_F16, {2, 1}, std::vector<uint16_t>(2, kOne));
  LayoutOperands good = operands(MARLIN_LAYOUT_ROWS, MARLIN_FORMAT_INT4, 2, 32, 32, q, s);
  EXPECT_TRUE(error_of(good).ok());
  const auto expect = [&](marlin_status code, const char* text, auto change) {
    LayoutOperands o = good;
    change(o);
    EXPECT_THAT(error_of(o), Fails(code, HasSubstr(text)));
  };
  expect(MARLIN_E_ARGUMENT, "format", [](auto& o) { o.format = 99; });
  expect(MARLIN_E_ARGUMENT, "layout", [](auto& o) { o.layout = 99; });
  expect(MARLIN_E_SHAPE, "n, k", [](auto& o) { o.n = 0; });
  expect(MARLIN_E_SHAPE, "n, k", [](auto& o) { o.k = int64_t{1} << 31; });
  expect(MARLIN_E_SHAPE, "values", [](auto& o) { o.n = 3; });
  expect(MARLIN_E_SHAPE, "values", [](auto& o) { o.k = 34; });
  expect(MARLIN_E_UNSUPPORTED, "group_size", [](auto& o) { o.group_size = 24; });
  expect(MARLIN_E_UNSUPPORTED, "values: dtype", [](auto& o) { o.values.dtype = MARLIN_I32; });
  expect(MARLIN_E_ARGUMENT, "expected", [](auto& o) { o.scales = {}; });
  expect(MARLIN_E_UNSUPPORTED, "scales", [](auto& o) { o.scales.dtype = MARLIN_U8; });
  expect(MARLIN_E_UNSUPPORTED, "scales", [](auto& o) { o.scales.dtype = MARLIN_E8M0; });
  expect(MARLIN_E_SHAPE, "scales", [](auto& o) { o.scales.dims = {1, 2}; });
  expect(MARLIN_E_ARGUMENT, "both", [](auto& o) { o.flags = MARLIN_PACK_PRUNE_2_4 | MARLIN_PACK_OBEYS_2_4; });
  expect(MARLIN_E_UNSUPPORTED, "dtype", [](auto& o) { o.layout = MARLIN_LAYOUT_K8N; });
  expect(MARLIN_E_SHAPE, "tensor_scale", [&](auto& o) {
    o.tensor_scale = s.view;
    o.tensor_scale.name = "tensor_scale";
  });
}

}  // namespace
}  // namespace metal_marlin::testing
