// GPTQ with codes of 2, 3 and 8 bits: streams down the columns, the dialects of packed zeros, and what is refused.
#include "checkpoint_operands.h"
#include "fails.h"
#include "formats/codecs.h"
#include "test.h"

namespace metal_marlin::testing {
namespace {

/// Columns of codes as words: code k of a column is the bits [k * bits, k * bits + bits) of its stream.
std::vector<uint32_t> pack_columns(const std::vector<std::vector<unsigned>>& columns, int bits) {
  const size_t n = columns.size(), rows = (columns[0].size() * static_cast<size_t>(bits) + 31) / 32;
  std::vector<uint32_t> words(rows * n);
  for (size_t c = 0; c < n; ++c) {
    for (size_t k = 0; k < columns[c].size(); ++k) {
      for (size_t b = 0; b < static_cast<size_t>(bits); ++b) {
        const size_t at = k * static_cast<size_t>(bits) + b;
        words[at / 32 * n + c] |= (columns[c][k] >> b & 1u) << at % 32;
      }
    }
  }
  return words;
}

/// A row of zeros as words along N.
std::vector<uint32_t> pack_row(const std::vector<unsigned>& row, int bits) { return pack_columns({row}, bits); }

/// The zeros of 32 columns in one group, whose codes are all 0, so every value is the negated zero.
std::vector<int> zeros_of(const std::vector<uint32_t>& words, int bits, marlin_layout layout, marlin_gptq_zero_f zero_f,
                          std::string* warning = nullptr) {
  const marlin_format format = bits == 2 ? MARLIN_FORMAT_INT2 : bits == 3 ? MARLIN_FORMAT_INT3 : MARLIN_FORMAT_INT8;
  const Operand q("values", MARLIN_I32, {bits, 32}, std::vector<uint32_t>(static_cast<size_t>(bits) * 32)),
      z("zeros", MARLIN_I32, {1, bits}, words), s("scales", MARLIN_F16, {1, 32}, std::vector<uint16_t>(32, kOne));
  LayoutOperands o = operands(layout, format, 32, 32, 32, q, s, z);
  o.zero_f = zero_f;
  if (warning != nullptr) *warning = make_source(o).value()->warning();
  const auto values = decode(o);
  std::vector<int> zeros;
  for (size_t n = 0; n < 32 && values.size() == 32 * 32; ++n) zeros.push_back(static_cast<int>(-values[32 * n]));
  return zeros;
}

TEST(CheckpointGptqWidths, CodesRunDownAColumn) {
  const Operand q("values", MARLIN_U32, {3, 1}, std::vector<uint32_t>{0x88fac688u, 0xc688fac6u, 0xfac688fau}),
      s("scales", MARLIN_F16, {1, 1}, std::vector<uint16_t>{kHalf});
  LayoutOperands o = operands(MARLIN_LAYOUT_GPTQ_V2, MARLIN_FORMAT_INT3, 1, 32, 32, q, s);
  const auto values = decode(o);
  ASSERT_EQ(values.size(), 32u);
  for (size_t k = 0; k < 32; ++k) EXPECT_EQ(values[k], (static_cast<float>(k % 8) - 4) / 2) << "absent zeros are 4";

  const Operand bytes("values", MARLIN_U32, {1, 1}, std::vector<uint32_t>{0xff817f00u});
  LayoutOperands eight = operands(MARLIN_LAYOUT_GPTQ_V2, MARLIN_FORMAT_INT8, 1, 4, 4, bytes, s);
  EXPECT_EQ(decode(eight), (std::vector<float>{-64, -0.5, 0.5, 63.5}));
}

/// Ragged in K and N: the last words of columns and of zeros are not full.
TEST(CheckpointGptqWidths, EveryWidthWithGroupsZerosAndActOrder) {
  constexpr size_t n = 37, k = 75, groups = 5;
  std::mt19937 random(11);
  for (const auto& [bits, format] : {std::pair{2, MARLIN_FORMAT_INT2}, {3, MARLIN_FORMAT_INT3}, {4, MARLIN_FORMAT_INT4}}) {
    SCOPED_TRACE(bits);
    const auto draw = [&, most = 1u << bits] { return static_cast<unsigned>(random()) % most; };
    std::vector<std::vector<unsigned>> codes(n, std::vector<unsigned>(k));
    for (auto& column : codes) std::generate(column.begin(), column.end(), draw);
    std::vector<unsigned> zeros(groups * n);
    std::generate(zeros.begin(), zeros.end(), draw);
    std::vector<uint32_t> packed;
    for (size_t g = 0; g < groups; ++g) {
      const auto row =
          pack_row({zeros.begin() + static_cast<long>(g * n), zeros.begin() + static_cast<long>((g + 1) * n)}, bits);
      packed.insert(packed.end(), row.begin(), row.end());
    }
    std::vector<int32_t> index(k);
    for (auto& g : index) g = static_cast<int32_t>(random() % groups);
    std::vector<uint16_t> scales(groups * n);
    for (auto& scale : scales) scale = static_cast<uint16_t>(0x3000 + random() % 0x1000);
    const auto rows = static_cast<int64_t>((k * static_cast<size_t>(bits) + 31) / 32);
    const Operand q("values", MARLIN_I32, {rows, n}, pack_columns(codes, bits)), s("scales", MARLIN_F16, {groups, n}, scales),
        z("zeros", MARLIN_I32, {groups, static_cast<int64_t>(packed.size() / groups)}, packed),
        g("group_index", MARLIN_I32, {1, k}, index);
    LayoutOperands o = operands(MARLIN_LAYOUT_GPTQ_V2, format, n, k, 16, q, s, z);
    for (const bool act_order : {false, true}) {
      if (act_order) o.group_index = g.view;
      const auto values = decode(o);
      ASSERT_EQ(values.size(), n * k);
      for (size_t at = 0; at < n * k; ++at) {
        const size_t group = act_order ? static_cast<size_t>(index[at % k]) : at % k / 16;
        const auto zero = static_cast<float>(zeros[group * n + at / k]);
        const float steps = static_cast<float>(codes[at / k][at % k]) - zero;
        ASSERT_EQ(values[at], steps * f16_to_f32(scales[group * n + at / k])) << at << " " << act_order;
      }
    }
  }
}

TEST(CheckpointGptqWidths, V1StoresZeroMinusOne) {
  for (const int bits : {2, 3}) {
    std::vector<unsigned> stored(32);
    std::vector<int> zeros(32), shifted(32);
    for (size_t n = 0; n < 32; ++n) {
      stored[n] = static_cast<unsigned>(n) % ((1u << bits) - 1);
      zeros[n] = static_cast<int>(stored[n]);
      shifted[n] = static_cast<int>(stored[n]) + 1;
    }
    const auto words = pack_row(stored, bits);
    EXPECT_EQ(zeros_of(words, bits, MARLIN_LAYOUT_GPTQ_V2, MARLIN_GPTQ_ZERO_F_AUTO), zeros);
    for (const auto zero_f : {MARLIN_GPTQ_ZERO_F_AUTO, MARLIN_GPTQ_ZERO_F_WRAP, MARLIN_GPTQ_ZERO_F_PLUS_ONE}) {
      std::string warning;
      EXPECT_EQ(zeros_of(words, bits, MARLIN_LAYOUT_GPTQ_V1, zero_f, &warning), shifted) << bits << " " << zero_f;
      EXPECT_EQ(warning, "");
    }
  }
}

TEST(CheckpointGptqWidths, TheLargestStoredZeroHasThreeReadings) {
  // The largest code in the first place, and zeros of 2 as they are stored in the others.
  for (const int bits : {2, 3}) {
    const int largest = (1 << bits) - 1;
    std::vector<unsigned> stored(32, 1);
    stored[0] = static_cast<unsigned>(largest);
    const auto words = pack_row(stored, bits);
    std::vector<int> expected(32, 2);
    expected[0] = 0;
    std::string warning;
    EXPECT_EQ(zeros_of(words, bits, MARLIN_LAYOUT_GPTQ_V1, MARLIN_GPTQ_ZERO_F_AUTO, &warning), expected);
    EXPECT_THAT(warning, HasSubstr("zeros: group 0, column 0 has a stored zero " + std::to_string(largest)));
    EXPECT_THAT(warning, HasSubstr("for 0 or " + std::to_string(largest + 1)));
    EXPECT_EQ(zeros_of(words, bits, MARLIN_LAYOUT_GPTQ_V1, MARLIN_GPTQ_ZERO_F_WRAP), expected);
    expected[0] = largest + 1;
    EXPECT_EQ(zeros_of(words, bits, MARLIN_LAYOUT_GPTQ_V1, MARLIN_GPTQ_ZERO_F_PLUS_ONE), expected);
    if (bits == 3) continue;
    expected[0] = 0;
    expected[1] = 3;  // the carry
    EXPECT_EQ(zeros_of(words, bits, MARLIN_LAYOUT_GPTQ_V1, MARLIN_GPTQ_ZERO_F_CARRY), expected);
  }
}

/// Up to version 6, GPTQModel subtracted the words of a row of ones with the first and the third swapped.
TEST(CheckpointGptqWidths, OldZerosOfThreeBits) {
  constexpr uint32_t kSwapped[3] = {0x24924924u, 0x92492492u, 0x49249249u};
  std::vector<unsigned> row(32);
  for (size_t n = 0; n < 32; ++n) row[n] = static_cast<unsigned>(n * 5 % 8);
  auto words = pack_row(row, 3);
  for (size_t i = 0; i < 3; ++i) words[i] -= kSwapped[i];
  EXPECT_EQ(zeros_of(words, 3, MARLIN_LAYOUT_GPTQ_V1, MARLIN_GPTQ_ZERO_F_CARRY), std::vector<int>(row.begin(), row.end()));

  // Symmetric files have one word of each kind, and are recognized by them.
  const std::vector<uint32_t> fours{0x00000000u, 0xb6db6db7u, 0x49249249u};
  std::string warning;
  EXPECT_EQ(zeros_of(fours, 3, MARLIN_LAYOUT_GPTQ_V1, MARLIN_GPTQ_ZERO_F_AUTO, &warning), std::vector<int>(32, 4));
  EXPECT_EQ(warning, "");
  EXPECT_EQ(zeros_of(fours, 3, MARLIN_LAYOUT_GPTQ_V1, MARLIN_GPTQ_ZERO_F_WRAP)[0], 1) << "a caller's choice counts";
  const std::vector<uint32_t> new_fours{0xdb6db6dbu, 0xb6db6db6u, 0x6db6db6du};
  EXPECT_EQ(zeros_of(new_fours, 3, MARLIN_LAYOUT_GPTQ_V1, MARLIN_GPTQ_ZERO_F_AUTO), std::vector<int>(32, 4));
}

TEST(CheckpointGptqWidths, EightBitsAreSymmetric) {
  const std::vector<uint32_t> v1(8, 0x7f7f7f7fu), v2(8, 0x80808080u);
  EXPECT_EQ(zeros_of(v1, 8, MARLIN_LAYOUT_GPTQ_V1, MARLIN_GPTQ_ZERO_F_AUTO), std::vector<int>(32, 128));
  EXPECT_EQ(zeros_of(v1, 8, MARLIN_LAYOUT_GPTQ_V1, MARLIN_GPTQ_ZERO_F_CARRY), std::vector<int>(32, 128));
  EXPECT_EQ(zeros_of(v2, 8, MARLIN_LAYOUT_GPTQ_V2, MARLIN_GPTQ_ZERO_F_AUTO), std::vector<int>(32, 128));
  auto other = v2;
  other[1] = 0x80817080u;
  const Operand q("values", MARLIN_I32, {8, 32}, std::vector<uint32_t>(256)), z("zeros", MARLIN_I32, {1, 8}, other),
      s("scales", MARLIN_F16, {1, 32}, std::vector<uint16_t>(32, kOne));
  LayoutOperands o = operands(MARLIN_LAYOUT_GPTQ_V2, MARLIN_FORMAT_INT8, 32, 32, 32, q, s, z);
  EXPECT_EQ(error_of(o).code(), MARLIN_E_UNSUPPORTED);
  EXPECT_STREQ(error_of(o).message(), "zeros: group 0, column 5: expected the zero 128 of symmetric 8-bit codes, found 112");
}

// --- files ------------------------------------------------------------------------------------------------------------

/// A file of one layer [32, 32] with codes 0 and zeros of these words.
std::string file_of(int bits, const std::vector<uint32_t>& zeros, bool with_index = false) {
  const auto b = static_cast<size_t>(bits);
  std::vector<TestTensor> tensors{{"l.qweight", "I32", std::to_string(bits) + ",32", std::string(b * 128, '\0')},
                                  {"l.qzeros", "I32", "1," + std::to_string(bits), ""},
                                  {"l.scales", "F16", "1,32", std::string(64, '\0')}};
  for (const uint32_t w : zeros) append(tensors[1].data, w);
  if (with_index) tensors.push_back({"l.g_idx", "I32", "32", std::string(128, '\0')});
  return safetensors(tensors);
}

Layer layer_of(const std::string& file, const std::string& config) {
  const auto opened = open_memory({{"f.safetensors", file}, {"config.json", config}});
  EXPECT_TRUE(opened.ok()) << opened.status().message();
  if (!opened.ok() || opened.value()->layers().size() != 1) return {};
  return opened.value()->layers()[0];
}

TEST(CheckpointGptqWidths, TheTensorsTellTheWidth) {
  const std::string silent = R"({"quantization_config":{"quant_method":"gptq","group_size":32}})",
                    four = R"({"quantization_config":{"quant_method":"gptq","group_size":32,"bits":4}})";
  const std::pair<int, marlin_format> widths[] = {
      {2, MARLIN_FORMAT_INT2}, {3, MARLIN_FORMAT_INT3}, {4, MARLIN_FORMAT_INT4}, {8, MARLIN_FORMAT_INT8}};
  for (const auto& [bits, format] : widths) {
    const std::vector<uint32_t> zeros(static_cast<size_t>(bits), bits == 8 ? 0x7f7f7f7f : 0);
    for (const bool with_index : {false, true}) {
      const Layer layer = layer_of(file_of(bits, zeros, with_index), with_index ? four : silent);
      EXPECT_TRUE(layer.status.ok()) << layer.status.message();
      EXPECT_EQ(layer.format, format);
      EXPECT_EQ(layer.k, 32);
      EXPECT_EQ(layer.n, 32);
    }
  }
}

TEST(CheckpointGptqWidths, UnreadKindsNameTheReason) {
  const auto refused = [](int bits, const std::string& members, const char* what) {
    const Layer layer = layer_of(file_of(bits, std::vector<uint32_t>(static_cast<size_t>(bits))),
                                 R"({"quantization_config":{"quant_method":"gptq",)" + members + "}}");
    EXPECT_THAT(layer.status, Fails(MARLIN_E_UNSUPPORTED,
                                    AllOf(HasSubstr("f.safetensors: byte "), HasSubstr("'l.qweight'"), HasSubstr(what))))
        << members;
  };
  refused(5, R"("bits":5)", "expected codes of 2, 3, 4 or 8 bits, found 5 bits");
  refused(7, R"("sym":true)", "found 7 bits");
  refused(3, R"("bits":3,"checkpoint_format":"gptq_p")", "gptq_p, which stores codes in planes of bits, is not read");
}

/// Words of K8N have their zeros one by one, in bytes.
TEST(CheckpointK8n, ZerosAreCodesOfFourBits) {
  const Operand q("values", MARLIN_U32, {8, 3}, std::vector<uint32_t>(24, 0x33333333u)),
      s("scales", MARLIN_F16, {2, 3}, std::vector<uint16_t>(6, kOne));
  const auto with_zeros = [&](const Operand& z) {
    LayoutOperands o = operands(MARLIN_LAYOUT_K8N, MARLIN_FORMAT_INT4, 3, 64, 32, q, s, z);
    return o;
  };
  const Operand good("zeros", MARLIN_U8, {2, 3}, std::vector<uint8_t>{0, 1, 2, 3, 4, 15});
  const auto values = decode(with_zeros(good));
  ASSERT_EQ(values.size(), 3u * 64);
  for (size_t n = 0; n < 3; ++n)
    for (size_t k = 0; k < 64; ++k)
      ASSERT_EQ(values[n * 64 + k], 3.0f - static_cast<float>(static_cast<uint8_t>(good.bytes[k / 32 * 3 + n])))
          << n << " " << k;
  const Operand bad("zeros", MARLIN_U8, {2, 3}, std::vector<uint8_t>{0, 1, 2, 3, 4, 16});
  EXPECT_STREQ(error_of(with_zeros(bad)).message(), "zeros: group 1, column 2: expected 0..15, found 16");
}

/// Zeros up to 255 have a place. The reading that takes a stored 255 for 256 has none.
TEST(CheckpointGptqWidths, EightBitsWithZeros) {
  for (const uint32_t stored : {0u, 0xfeu, 0xffu}) {
    const std::vector<uint32_t> words(8, stored * 0x01010101u);
    const Layer layer = layer_of(file_of(8, words), R"({"quantization_config":{"quant_method":"gptq","bits":8,"sym":false}})");
    EXPECT_TRUE(layer.status.ok()) << layer.status.message();
    EXPECT_EQ(layer.format, MARLIN_FORMAT_UINT8);
    EXPECT_EQ(layer.flags & MARLIN_LAYER_ZEROS, MARLIN_LAYER_ZEROS);
    const Operand q("values", MARLIN_I32, {8, 32}, std::vector<uint32_t>(8 * 32)), z("zeros", MARLIN_I32, {1, 8}, words),
        s("scales", MARLIN_F16, {1, 32}, std::vector<uint16_t>(32, kOne));
    LayoutOperands o = operands(MARLIN_LAYOUT_GPTQ_V1, MARLIN_FORMAT_UINT8, 32, 32, 32, q, s, z);
    o.zero_f = MARLIN_GPTQ_ZERO_F_WRAP;
    const auto values = decode(o);
    ASSERT_EQ(values.size(), 32u * 32u);
    EXPECT_EQ(values[0], -static_cast<float>((stored + 1) % 256));
    o.zero_f = MARLIN_GPTQ_ZERO_F_PLUS_ONE;
    const auto past_limit = make_source(o);
    EXPECT_EQ(past_limit.ok(), stored != 0xffu);
    if (!past_limit.ok()) {
      EXPECT_THAT(past_limit.status().message(), HasSubstr("expected zeros of 8-bit codes up to 255, found 256"));
    }
  }
}

TEST(CheckpointGptqWidths, AZeroPastTheLimitIsNamedByItsPlace) {
  std::vector<uint32_t> words(2 * 8);  // two groups of 32 columns
  words[8 + 1] = 0xffu << 16;          // group 1, column 6
  const Operand q("values", MARLIN_I32, {16, 32}, std::vector<uint32_t>(16 * 32)), z("zeros", MARLIN_I32, {2, 8}, words),
      s("scales", MARLIN_F16, {2, 32}, std::vector<uint16_t>(64, kOne));
  LayoutOperands o = operands(MARLIN_LAYOUT_GPTQ_V1, MARLIN_FORMAT_UINT8, 32, 64, 32, q, s, z);
  o.zero_f = MARLIN_GPTQ_ZERO_F_PLUS_ONE;
  EXPECT_STREQ(make_source(o).status().message(),
               "zeros: group 1, column 6: expected zeros of 8-bit codes up to 255, found 256");
}

/// The version of GPTQModel decides between its two dialects of 3-bit zeros.
TEST(CheckpointGptqWidths, TheQuantizerOfThreeBitZeros) {
  const std::vector<uint32_t> old_words{0x00000000u, 0xb6db6db7u, 0x49249249u}, ones(3, 0);
  const auto zero_of = [](const std::vector<uint32_t>& zeros, const std::string& quantizer) {
    std::string file = file_of(3, zeros);
    for (size_t n = 0; n < 32; ++n) file[file.size() - 64 + 2 * n + 1] = '\x3c';  // scales of 1
    const std::string config =
        R"({"quantization_config":{"quant_method":"gptq","bits":3,"meta":{"quantizer":[")" + quantizer + "\"]}}}";
    const auto opened = open_memory({{"f.safetensors", file}, {"config.json", config}});
    EXPECT_TRUE(opened.ok()) << opened.status().message();
    const auto source = opened.value()->source(0, 0, {});
    EXPECT_TRUE(source.ok()) << source.status().message();
    return -decode_all(*source.value()).value()[0];
  };
  for (const char* old : {"gptqmodel:1.4", "gptqmodel:5.8.0", "GPTQModel:6.0"}) {
    EXPECT_EQ(zero_of(old_words, old), 4) << old;
    EXPECT_EQ(zero_of(ones, old), 4) << old << ": 24924924 in the first word";
  }
  for (const char* now : {"gptqmodel:7.0.0", "gptqmodel:10", "auto_gptq:0.7.1"}) EXPECT_EQ(zero_of(ones, now), 1) << now;
  for (const char* unknown : {"gptqmodel", "gptqmodel:x", "someone"}) {
    EXPECT_EQ(zero_of(old_words, unknown), 4) << unknown;
    EXPECT_EQ(zero_of(ones, unknown), 1) << unknown;
  }
}

}  // namespace
}  // namespace metal_marlin::testing
