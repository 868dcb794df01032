// AWQ's "gemv" and "gemv_fast": all codes against writers that follow the definitions, padding, additive zeros, group sizes.
#include "checkpoint_operands.h"
#include "fails.h"
#include "formats/codecs.h"
#include "test.h"

namespace metal_marlin::testing::checkpoint_awq_gemv_tests {
namespace {

template <class T>
std::string text(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

/// A random matrix in both layouts. Padded groups hold noise, which no reader may look at.
struct Drawn {
  int64_t n, k, group, padded;
  std::vector<uint8_t> codes;    // [n][k]
  std::vector<uint8_t> zeros;    // [n][padded]
  std::vector<uint16_t> scales;  // [n][padded]

  Drawn(int64_t rows, int64_t columns, int64_t size, int64_t padded_groups)
      : n(rows), k(columns), group(size), padded(padded_groups) {
    std::mt19937 random(static_cast<uint32_t>(rows * columns));
    for (int64_t i = 0; i < n * k; ++i) codes.push_back(static_cast<uint8_t>(random() % 16));
    for (int64_t i = 0; i < n * padded; ++i) {
      zeros.push_back(static_cast<uint8_t>(random() % 16));
      scales.push_back(static_cast<uint16_t>(0x3000 + random() % 0x1000));
    }
  }
  uint8_t code(int64_t row, int64_t column) const { return codes[static_cast<size_t>(row * k + column)]; }
  size_t at(int64_t row, int64_t column) const { return static_cast<size_t>(row * padded + column / group); }

  std::vector<uint32_t> gemv_words() const { return words(codes); }
  std::vector<uint32_t> gemv_zeros() const { return words(zeros); }
  static std::vector<uint32_t> words(const std::vector<uint8_t>& nibbles) {
    std::vector<uint32_t> out(nibbles.size() / 8);
    for (size_t i = 0; i < nibbles.size(); ++i) out[i / 8] |= uint32_t{nibbles[i]} << i % 8 * 4;
    return out;
  }
  std::vector<uint16_t> fast_units() const {
    std::vector<uint16_t> out;
    for (int64_t block = 0; block < n / 4; ++block) {
      for (int64_t kk = 0; kk < k; kk += 64) {
        for (int64_t r = 0; r < 4; ++r) {
          std::vector<int64_t> order;  // 0, 8, 16, 24, 1, 9, ...
          for (int64_t half = 0; half < 64; half += 32) {
            for (int64_t i = 0; i < 8; ++i) {
              for (int64_t j = 0; j < 32; j += 8) order.push_back(half + j + i);
            }
          }
          for (size_t p = 0; p < 16; ++p) {
            uint32_t unit = 0;
            for (size_t j = 0; j < 4; ++j) unit |= uint32_t{code(4 * block + r, kk + order[4 * p + j])} << 4 * j;
            out.push_back(static_cast<uint16_t>(unit));
          }
        }
      }
    }
    return out;
  }
  /// [rows][n] of the first `rows` groups.
  std::vector<uint16_t> transposed_scales(int64_t rows) const {
    std::vector<uint16_t> out;
    for (int64_t g = 0; g < rows; ++g) {
      for (int64_t row = 0; row < n; ++row) out.push_back(scales[static_cast<size_t>(row * padded + g)]);
    }
    return out;
  }
  /// -scale * zero, rounded to float16 as the writer does.
  std::vector<uint16_t> scaled_zeros(int64_t rows) const {
    std::vector<uint16_t> out;
    for (int64_t g = 0; g < rows; ++g) {
      for (int64_t row = 0; row < n; ++row) {
        const auto i = static_cast<size_t>(row * padded + g);
        out.push_back(f32_to_f16(-f16_to_f32(scales[i]) * zeros[i]));
      }
    }
    return out;
  }
  std::vector<float> gemv_values() const {
    std::vector<float> out;
    for (int64_t row = 0; row < n; ++row) {
      for (int64_t c = 0; c < k; ++c) out.push_back((code(row, c) - zeros[at(row, c)]) * f16_to_f32(scales[at(row, c)]));
    }
    return out;
  }
  std::vector<float> fast_values() const {
    std::vector<float> out;
    for (int64_t row = 0; row < n; ++row) {
      for (int64_t c = 0; c < k; ++c) {
        const float scale = f16_to_f32(scales[at(row, c)]);
        const float zero = f16_to_f32(f32_to_f16(-scale * zeros[at(row, c)]));
        out.push_back(
            static_cast<float>(static_cast<double>(code(row, c)) * static_cast<double>(scale) + static_cast<double>(zero)));
      }
    }
    return out;
  }
};

/// n, k, group, groups with padding as AutoAWQ's calculate_zeros_width has them, times eight.
constexpr std::tuple<int64_t, int64_t, int64_t, int64_t> kShapes[] = {{4, 128, 128, 8},  {8, 1152, 128, 16}, {12, 640, 64, 16},
                                                                      {4, 1088, 64, 32}, {8, 64, 32, 32},    {4, 1088, 32, 64},
                                                                      {4, 256, 256, 8}};

TEST(CheckpointAwqGemv, EveryCode) {
  for (const auto& [n, k, group, padded] : kShapes) {
    SCOPED_TRACE(std::to_string(k) + " in " + std::to_string(group));
    const Drawn m(n, k, group, padded);
    const Operand q("values", MARLIN_I32, {n, k / 8}, m.gemv_words()), s("scales", MARLIN_F16, {n, padded}, m.scales),
        z("zeros", MARLIN_I32, {n, padded / 8}, m.gemv_zeros());
    LayoutOperands o = operands(MARLIN_LAYOUT_AWQ_GEMV, MARLIN_FORMAT_INT4, n, k, group, q, s, z);
    EXPECT_EQ(decode(o), m.gemv_values());
  }
}

TEST(CheckpointAwqGemvFast, EveryCodeWithAndWithoutPadding) {
  for (const auto& [n, k, group, padded] : kShapes) {
    SCOPED_TRACE(std::to_string(k) + " in " + std::to_string(group));
    const Drawn m(n, k, group, padded);
    for (const int64_t rows : {padded, k / group}) {
      const Operand q("values", MARLIN_I16, {n / 4, k}, m.fast_units()),
          s("scales", MARLIN_F16, {rows, n}, m.transposed_scales(rows)),
          z("zeros", MARLIN_F16, {rows, n}, m.scaled_zeros(rows));
      LayoutOperands o = operands(MARLIN_LAYOUT_AWQ_GEMV_FAST, MARLIN_FORMAT_INT4, n, k, group, q, s, z);
      EXPECT_EQ(decode(o), m.fast_values());
      o.flags = MARLIN_PACK_ADDITIVE_ZEROS;
      EXPECT_EQ(decode(o), m.fast_values()) << "the flag says what the layout says";
    }
  }
}

TEST(CheckpointAwqGemvFast, ModelsOfBfloat16) {
  std::vector<uint16_t> units(64, 0);
  units[0] = 0x4321;  // elements 0, 8, 16, 24
  const Operand q("values", MARLIN_I16, {1, 64}, units), s("scales", MARLIN_BF16, {1, 4}, std::vector<uint16_t>(4, 0x3f80)),
      z("zeros", MARLIN_BF16, {1, 4}, std::vector<uint16_t>(4, 0xc000));
  LayoutOperands o = operands(MARLIN_LAYOUT_AWQ_GEMV_FAST, MARLIN_FORMAT_INT4, 4, 64, 64, q, s, z);
  const auto values = decode(o);
  EXPECT_EQ(values[0], -1.0f);
  EXPECT_EQ(values[8], 0.0f);
  EXPECT_EQ(values[16], 1.0f);
  EXPECT_EQ(values[24], 2.0f);
  EXPECT_EQ(values[64], -2.0f);
}

TEST(CheckpointAwqGemv, WhatIsRefused) {
  const Drawn m(8, 640, 64, 16);
  const Operand q("values", MARLIN_I32, {8, 80}, m.gemv_words()), s("scales", MARLIN_F16, {8, 16}, m.scales),
      z("zeros", MARLIN_I32, {8, 2}, m.gemv_zeros());
  const Operand fq("values", MARLIN_I16, {2, 640}, m.fast_units()), fs("scales", MARLIN_F16, {16, 8}, m.transposed_scales(16)),
      fz("zeros", MARLIN_F16, {16, 8}, m.scaled_zeros(16));
  LayoutOperands gemv = operands(MARLIN_LAYOUT_AWQ_GEMV, MARLIN_FORMAT_INT4, 8, 640, 64, q, s, z);
  LayoutOperands fast = operands(MARLIN_LAYOUT_AWQ_GEMV_FAST, MARLIN_FORMAT_INT4, 8, 640, 64, fq, fs, fz);
  EXPECT_TRUE(error_of(gemv).ok());
  EXPECT_TRUE(error_of(fast).ok());
  const auto expect = [](const LayoutOperands& good, marlin_status code, const char* what, auto change) {
    LayoutOperands o = good;
    change(o);
    EXPECT_THAT(error_of(o), Fails(code, HasSubstr(what)));
  };
  for (const LayoutOperands& good : {gemv, fast}) {
    expect(good, MARLIN_E_UNSUPPORTED, "INT4", [](auto& o) { o.format = MARLIN_FORMAT_FP4; });
    expect(good, MARLIN_E_UNSUPPORTED, "group_size", [](auto& o) { o.group_size = 16; });
    expect(good, MARLIN_E_UNSUPPORTED, "group_size", [](auto& o) { o.group_size = 256; });
    expect(good, MARLIN_E_SHAPE, "scales: expected [", [](auto& o) { o.group_size = 32; });
    expect(good, MARLIN_E_ARGUMENT, "expected none", [&](auto& o) { o.group_index = s.view; });
    expect(good, MARLIN_E_UNSUPPORTED, "values: dtype", [](auto& o) { o.values.dtype = MARLIN_U8; });
    expect(good, MARLIN_E_UNSUPPORTED, "scales", [](auto& o) { o.scales.dtype = MARLIN_I16; });
    expect(good, MARLIN_E_SHAPE, "values: expected [", [](auto& o) { o.values.dims = {4, 320}; });
  }
  expect(gemv, MARLIN_E_ARGUMENT, "additive", [](auto& o) { o.flags = MARLIN_PACK_ADDITIVE_ZEROS; });
  expect(gemv, MARLIN_E_SHAPE, "zeros: expected [8, 2]", [](auto& o) { o.zeros.dims = {2, 8}; });
  expect(fast, MARLIN_E_SHAPE, "zeros: expected [16, 8]", [](auto& o) { o.zeros.dims = {8, 16}; });
  expect(fast, MARLIN_E_UNSUPPORTED, "zeros: dtype", [](auto& o) { o.zeros.dtype = MARLIN_I32; });
  expect(fast, MARLIN_E_ARGUMENT, "zeros: expected this operand", [](auto& o) {
    o.zeros = {};
    o.zeros.name = "zeros";
  });
  expect(fast, MARLIN_E_SHAPE, "multiples of 4 and 64", [](auto& o) { o.n = 6; });
  expect(fast, MARLIN_E_SHAPE, "multiples of 4 and 64", [](auto& o) { o.k = o.group_size = 160; });
}

TEST(CheckpointAwqGemv, FilesTellTheGroupSizeByConfigOrByPadding) {
  const Drawn m(8, 1088, 64, 32);
  const std::string gemv = safetensors({{"l.qweight", "I32", "8,136", text(m.gemv_words())},
                                        {"l.qzeros", "I32", "8,4", text(m.gemv_zeros())},
                                        {"l.scales", "F16", "8,32", text(m.scales)}});
  const std::string fast = safetensors({{"l.qweight", "I16", "2,1088", text(m.fast_units())},
                                        {"l.scaled_zeros", "F16", "32,8", text(m.scaled_zeros(32))},
                                        {"l.scales", "F16", "32,8", text(m.transposed_scales(32))}});
  const auto open = [](const std::string& file, const char* config) {
    return open_memory({{"f.safetensors", file}, {"config.json", config}});
  };
  for (const auto& [file, version, layout, values] :
       {std::tuple{gemv, "gemv", MARLIN_LAYOUT_AWQ_GEMV, m.gemv_values()},
        std::tuple{fast, "gemv_fast", MARLIN_LAYOUT_AWQ_GEMV_FAST, m.fast_values()}}) {
    const std::string head = std::string(R"({"quantization_config":{"quant_method":"awq","version":")") + version + "\"";
    for (const std::string& config : {head + R"(,"bits":4,"group_size":64}})", head + "}}", std::string("{}")}) {
      SCOPED_TRACE(config);
      const auto opened = must(open(file, config.c_str()));
      const Layer& layer = opened->layers()[0];
      ASSERT_TRUE(layer.status.ok()) << layer.status.message();
      EXPECT_EQ(layer.layout, layout);
      EXPECT_EQ(layer.group_size, 64);
      const auto source = must(opened->source(0, 0, {}));
      EXPECT_EQ(decode_all(*source).value(), values);
    }
    const auto wrong = must(open(file, (head + R"(,"group_size":32}})").c_str()));
    EXPECT_THAT(wrong->layers()[0].status, Fails(MARLIN_E_SHAPE, HasSubstr("l.scales")));
    const auto bits = open(file, (head + R"(,"bits":3}})").c_str());
    EXPECT_EQ(bits.value()->layers()[0].status.code(), MARLIN_E_UNSUPPORTED);
  }
  // Eight groups with padding: two of 128 or one of 256.
  const Drawn small(4, 256, 128, 8);
  const auto opened = open(safetensors({{"l.qweight", "I32", "4,32", text(small.gemv_words())},
                                        {"l.qzeros", "I32", "4,1", text(small.gemv_zeros())},
                                        {"l.scales", "F16", "4,8", text(small.scales)}}),
                           R"({"quantization_config":{"quant_method":"awq","version":"gemv"}})");
  EXPECT_THAT(opened.value()->layers()[0].status, Fails(MARLIN_E_UNSUPPORTED, HasSubstr("128 or 256")));
}

}  // namespace
}  // namespace metal_marlin::testing::checkpoint_awq_gemv_tests
