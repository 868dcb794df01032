// compressed-tensors with codes of 2 to 8 bits: dense and padded words, their zero points, int-quantized, and what is refused.
#include "checkpoint_files.h"
#include "fails.h"
#include "sources/shard.h"
#include "test.h"

namespace metal_marlin::testing {
namespace {

/// Codes as 32-bit words: a stream without gaps, or as many whole codes as fit into each word.
std::vector<uint32_t> pack(const std::vector<unsigned>& codes, size_t bits, bool padded) {
  const size_t each = 32 / bits;
  std::vector<uint32_t> words(padded ? (codes.size() + each - 1) / each : (codes.size() * bits + 31) / 32);
  for (size_t i = 0; i < codes.size(); ++i) {
    for (size_t b = 0; b < bits; ++b) {
      const size_t at = padded ? i / each * 32 + i % each * bits + b : i * bits + b;
      words[at / 32] |= (codes[i] >> b & 1u) << at % 32;
    }
  }
  return words;
}

std::string bytes_of_words(const std::vector<uint32_t>& words) {
  return {reinterpret_cast<const char*>(words.data()), words.size() * 4};
}

std::string config_of(const std::string& bits, const std::string& version) {
  std::string text = R"({"quantization_config":{"quant_method":"compressed-tensors","format":"pack-quantized",)";
  if (!version.empty()) text += R"("version":")" + version + "\",";
  return text + R"("config_groups":{"group_0":{"weights":{"num_bits":)" + bits + R"(,"group_size":32}}}}})";
}

Result<std::unique_ptr<Checkpoint>> open_tensors(const std::vector<TestTensor>& tensors, const std::string& config) {
  return open_memory({{"f.safetensors", safetensors(tensors)}, {"config.json", config}});
}

/// A layer [n, k] of codes and zeros in groups of 32, with scales of 1.
struct PackedLayer {
  PackedLayer(size_t n_, size_t k_, size_t bits_, bool padded_, bool zeros_) : n(n_), k(k_), bits(bits_), padded(padded_) {
    std::mt19937 random(static_cast<unsigned>(13 + bits));
    codes.resize(n * k);
    for (auto& q : codes) q = static_cast<unsigned>(random()) % (1u << bits);
    zeros.resize(zeros_ ? n * groups() : 0);
    for (auto& z : zeros) z = static_cast<unsigned>(random()) % (1u << bits);
  }
  size_t groups() const { return (k + 31) / 32; }
  std::vector<TestTensor> tensors() const {
    std::string rows;
    for (size_t r = 0; r < n; ++r) {
      rows += bytes_of_words(
          pack({codes.begin() + static_cast<long>(r * k), codes.begin() + static_cast<long>((r + 1) * k)}, bits, padded));
    }
    std::string scales;
    for (size_t i = 0; i < n * groups(); ++i) append(scales, uint16_t{0x3c00});
    const auto text = [](size_t a, size_t b) { return std::to_string(a) + "," + std::to_string(b); };
    std::vector<TestTensor> all{
        {"l.weight_packed", "I32", text(n, rows.size() / n / 4), rows},
        {"l.weight_scale", "F16", text(n, groups()), scales},
        {"l.weight_shape", "I64", "2", bytes_of<int64_t>({static_cast<int64_t>(n), static_cast<int64_t>(k)})}};
    if (zeros.empty()) return all;
    const size_t words = pack(std::vector<unsigned>(n), bits, padded).size();
    std::vector<uint32_t> columns(words * groups());
    for (size_t g = 0; g < groups(); ++g) {
      std::vector<unsigned> column(n);
      for (size_t r = 0; r < n; ++r) column[r] = zeros[r * groups() + g];
      const auto packed = pack(column, bits, padded);
      for (size_t w = 0; w < words; ++w) columns[w * groups() + g] = packed[w];
    }
    all.push_back({"l.weight_zero_point", "I32", text(words, groups()), bytes_of_words(columns)});
    return all;
  }
  float value(size_t at) const {
    const unsigned zero = zeros.empty() ? 1u << bits >> 1 : zeros[at / k * groups() + at % k / 32];
    return static_cast<float>(static_cast<int>(codes[at]) - static_cast<int>(zero));
  }
  size_t n, k, bits;
  bool padded;
  std::vector<unsigned> codes, zeros;
};

TEST(CheckpointCompressed, EveryWidthDenseAndPadded) {
  constexpr std::pair<size_t, marlin_format> kWidths[] = {{2, MARLIN_FORMAT_INT2}, {3, MARLIN_FORMAT_INT3},
                                                          {4, MARLIN_FORMAT_INT4}, {5, MARLIN_FORMAT_INT5},
                                                          {6, MARLIN_FORMAT_INT6}, {8, MARLIN_FORMAT_INT8}};
  for (const auto& [bits, format] : kWidths) {
    for (const bool padded : {false, true}) {
      for (const bool zeros : {false, true}) {
        if (zeros && bits == 8) continue;
        SCOPED_TRACE(std::to_string(bits) + (padded ? " padded" : " dense") + (zeros ? " asymmetric" : ""));
        const PackedLayer layer(13, 200, bits, padded, zeros);
        const auto opened = must(open_tensors(layer.tensors(), config_of(std::to_string(bits), "")));
        const Layer found = opened->layers()[0];
        ASSERT_TRUE(found.status.ok()) << found.status.message();
        EXPECT_EQ(found.format, format);
        EXPECT_EQ(found.layout, MARLIN_LAYOUT_ROWS);
        EXPECT_EQ(found.k, 200);
        const auto values = decode_all(*opened->source(0, 0, {}).value(), 5).value();
        for (size_t at = 0; at < values.size(); ++at) ASSERT_EQ(values[at], layer.value(at)) << at;
      }
    }
  }
}

/// Padded words hold a whole number of codes, so that columns of a shard begin within a word.
TEST(CheckpointCompressed, ShardsOfPaddedWordsAreTheWhole) {
  for (const size_t bits : {3, 5, 6}) {
    for (const bool zeros : {false, true}) {
      const PackedLayer layer(13, 200, bits, true, zeros);
      const auto opened = must(open_tensors(layer.tensors(), config_of(std::to_string(bits), "0.17.1")));
      for (const auto& [first, count] :
           {std::pair<size_t, size_t>{0, 96}, {64, 64}, {96, 104}, {160, 40}, {33, 70}, {101, 99}}) {
        SCOPED_TRACE(std::to_string(bits) + " bits, columns " + std::to_string(first) + " + " + std::to_string(count));
        const auto shard =
            must(make_shard(opened->source(0, 0, {}).take(), 0, 13, static_cast<int64_t>(first), static_cast<int64_t>(count)));
        const auto values = decode_all(*shard).value();
        ASSERT_EQ(values.size(), 13 * count);
        for (size_t at = 0; at < values.size(); ++at)
          ASSERT_EQ(values[at], layer.value(at / count * 200 + first + at % count)) << at;
      }
    }
  }
}

/// The values of ten 3-bit codes, which are one word in both packings.
Result<std::vector<float>> ten_codes(const std::string& version) {
  const auto opened = open_tensors({{"l.weight_packed", "I32", "1,1", bytes_of<uint32_t>({0x08fac688u})},
                                    {"l.weight_scale", "F32", "1,1", bytes_of<float>({1})},
                                    {"l.weight_shape", "I64", "2", bytes_of<int64_t>({1, 10})}},
                                   config_of("3", version));
  MARLIN_ASSIGN(const auto source, opened.value()->source(0, 0, {}));
  return decode_all(*source);
}

TEST(CheckpointCompressed, TheVersionDecidesWhereTheWordsDoNot) {
  const std::vector<float> expected{-4, -3, -2, -1, 0, 1, 2, 3, -4, -3};
  for (const char* version : {"0.10.2", "0.17.1", "0.18.0", "0.20.1.a20260101", "1.0"}) {
    const auto values = ten_codes(version);
    ASSERT_TRUE(values.ok()) << version << ": " << values.status().message();
    EXPECT_EQ(values.value(), expected) << version << ": the worked example";
  }
  for (const char* version : {"", "x", "0", "0.", "99999999999.1"}) {
    EXPECT_THAT(ten_codes(version).status(),
                Fails(MARLIN_E_UNSUPPORTED, HasSubstr("cannot tell whether words of 3-bit codes are padded")))
        << version;
  }
  // 40 codes are four words dense or padded, but the words differ.
  for (const auto& [version, padded] : {std::pair{"0.17.1", true}, {"0.18.0", false}, {"0.9", true}, {"1.2", false}}) {
    const PackedLayer layer(3, 40, 3, padded, false);
    const auto opened = open_tensors(layer.tensors(), config_of("3", version));
    const auto values = decode_all(*opened.value()->source(0, 0, {}).value()).value();
    for (size_t at = 0; at < values.size(); ++at) ASSERT_EQ(values[at], layer.value(at)) << version << " " << at;
  }
}

TEST(CheckpointCompressed, UnreadKindsNameTheReason) {
  const auto refused = [](std::vector<TestTensor> tensors, const std::string& config, marlin_status code, const char* tensor,
                          const char* what) {
    const auto opened = must(open_tensors(tensors, config));
    ASSERT_EQ(opened->layers().size(), 1u);
    EXPECT_THAT(opened->layers()[0].status,
                Fails(code, AllOf(HasSubstr("f.safetensors: byte "), HasSubstr(tensor), HasSubstr(what))));
  };
  const auto seven = PackedLayer(2, 96, 7, false, false).tensors();
  refused(seven, config_of("7", "0.20"), MARLIN_E_UNSUPPORTED, "l.weight_packed", "codes of 7 bits are not read");
  refused(seven, config_of("4", "0.20"), MARLIN_E_FORMAT, "l.weight_packed",
          "expected codes of 4 bits for 96 elements, found 21 words a row");
  refused(seven, "{}", MARLIN_E_FORMAT, "l.weight_packed", "expected codes of 2 or 3 or 4 or 5 or 6 or 8 bits");
  auto three = PackedLayer(2, 96, 3, false, true).tensors();
  three[3].shape = "3,1";
  refused(three, config_of("3", "0.20"), MARLIN_E_SHAPE, "l.weight_zero_point", "expected [1, 3], found [3, 1]");
  three.erase(three.begin() + 2, three.end());
  refused(three, config_of("3", "0.20"), MARLIN_E_NOT_FOUND, "l.weight_packed", "'l.weight_shape' is in none of the files");
  auto eight = PackedLayer(2, 32, 8, false, false).tensors();
  eight.push_back({"l.weight_zero_point", "I32", "2,1", std::string(8, '\0')});
  refused(eight, config_of("8", "0.20"), MARLIN_E_SHAPE, "l.weight_zero_point", "expected [1, 1], found [2, 1]");
  std::vector<TestTensor> bytes{{"l.weight", "I8", "2,32", std::string(64, '\1')},
                                {"l.weight_scale", "F32", "3,1", std::string(12, '\0')}};
  refused(bytes, "{}", MARLIN_E_SHAPE, "l.weight_scale", "expected [2, 1], found [3, 1]");
  bytes[1] = {"l.weight_scale", "F32", "2,1", std::string(8, '\0')};
  bytes.push_back({"l.weight_zero_point", "I8", "3,1", std::string(3, '\0')});
  refused(bytes, "{}", MARLIN_E_SHAPE, "l.weight_zero_point", "expected [2, 1], found [3, 1]");
  bytes[2] = {"l.weight_zero_point", "U8", "2,1", std::string(2, '\0')};
  refused(bytes, "{}", MARLIN_E_UNSUPPORTED, "l.weight_zero_point", "expected I8, found U8");
  bytes.pop_back();
  bytes[1] = {"l.weight_scale", "F8_E8M0", "2,1", std::string(2, '\0')};
  refused(bytes, "{}", MARLIN_E_UNSUPPORTED, "l.weight", "weights of 8 bits (I8) are not read");
}

TEST(CheckpointCompressed, IntQuantizedTakesScalesOfTensorsRowsAndGroups) {
  std::string codes;
  for (int i = 0; i < 128; ++i) codes.push_back(static_cast<char>(i * 37 - 128));
  const auto values_with = [&](const char* shape, std::initializer_list<float> scales) {
    const auto opened =
        open_tensors({{"l.weight", "I8", "2,64", codes}, {"l.weight_scale", "F32", shape, bytes_of(scales)}}, "{}");
    const Layer layer = opened.value()->layers()[0];
    EXPECT_TRUE(layer.status.ok()) << layer.status.message();
    EXPECT_EQ(layer.format, MARLIN_FORMAT_INT8);
    EXPECT_EQ(layer.layout, MARLIN_LAYOUT_ROWS);
    return decode_all(*opened.value()->source(0, 0, {}).value(), 1).value();
  };
  const auto expect = [&](const std::vector<float>& values, const std::function<float(size_t)>& scale) {
    ASSERT_EQ(values.size(), 128u);
    for (size_t i = 0; i < 128; ++i) ASSERT_EQ(values[i], static_cast<float>(static_cast<int8_t>(codes[i])) * scale(i)) << i;
  };
  expect(values_with("1", {0.5f}), [](size_t) { return 0.5f; });
  expect(values_with("", {0.25f}), [](size_t) { return 0.25f; });
  expect(values_with("2,1", {0.5f, 3}), [](size_t i) { return i < 64 ? 0.5f : 3.0f; });
  expect(values_with("2,2", {1, 2, 3, 4}), [](size_t i) { return static_cast<float>(1 + i / 32); });
}

TEST(CheckpointCompressed, IntQuantizedTakesZeroPoints) {
  std::string codes;
  for (int i = 0; i < 128; ++i) codes.push_back(static_cast<char>(i * 37 - 128));
  const auto values_with = [&](const char* shape, std::initializer_list<float> scales, const std::string& zeros) {
    const auto opened = open_tensors({{"l.weight", "I8", "2,64", codes},
                                      {"l.weight_scale", "F32", shape, bytes_of(scales)},
                                      {"l.weight_zero_point", "I8", shape, zeros}},
                                     "{}");
    const Layer layer = opened.value()->layers()[0];
    EXPECT_TRUE(layer.status.ok()) << layer.status.message();
    EXPECT_EQ(layer.format, MARLIN_FORMAT_UINT8);
    EXPECT_EQ(layer.flags, MARLIN_LAYER_ZEROS);
    return decode_all(*opened.value()->source(0, 0, {}).value(), 1).value();
  };
  const auto of_rows = values_with("2,1", {0.5f, 3}, {-128, 127}), of_tensor = values_with("1", {0.25f}, {5});
  for (size_t i = 0; i < 128; ++i) {
    const float code = static_cast<int8_t>(codes[i]);
    ASSERT_EQ(of_rows[i], i < 64 ? (code + 128) * 0.5f : (code - 127) * 3) << i;
    ASSERT_EQ(of_tensor[i], (code - 5) * 0.25f) << i;
  }
}

}  // namespace
}  // namespace metal_marlin::testing
