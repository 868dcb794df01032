// TorchAO: nibbles in two's complement with transposed scales, bytes with integer zeros, and the layers that are refused.
#include "checkpoint_files.h"
#include "fails.h"
#include "formats/codecs.h"
#include "sources/shard.h"
#include "test.h"

namespace metal_marlin::testing::checkpoint_torchao_tests {
namespace {

constexpr int64_t kN = 3, kK = 64, kG = 32;

std::string bf16(std::initializer_list<float> values) {
  std::string out;
  for (const float value : values) append(out, f32_to_bf16(value));
  return out;
}

/// Codes of Int4Tensor: byte i of the matrix is i, modulo 256. Scales and zeros are [K / G, N].
std::vector<TestTensor> plain() {
  std::string codes;
  for (int64_t i = 0; i < kN * kK / 2; ++i) codes += static_cast<char>(i * 37);
  return {{"l._weight_qdata", "I8", "3,32", codes},
          {"l._weight_scale", "BF16", "2,3", bf16({0.5f, 1, 2, 4, 8, 16})},
          {"l._weight_zero_point", "BF16", "2,3", bf16({0.25f, -1, 3, 0, 5, -7})}};
}

/// Bytes of IntxUnpackedToInt8Tensor. Scales and zeros are [N, K / G].
std::vector<TestTensor> bytes() {
  std::string codes;
  for (int64_t i = 0; i < kN * kK; ++i) codes += static_cast<char>(i * 5);
  return {{"l._weight_qdata", "I8", "3,64", codes},
          {"l._weight_scale", "BF16", "3,2", bf16({0.5f, 1, 2, 4, 8, 16})},
          {"l._weight_zero_point", "I8", "3,2", std::string("\x00\x05\x80\x7f\xff\x01", 6)}};
}

Result<std::unique_ptr<Checkpoint>> open_tensors(const std::vector<TestTensor>& tensors) {
  return open_memory({{"f.safetensors", safetensors(tensors)}});
}

using Value = std::function<float(int64_t n, int64_t k)>;

/// The whole matrix, and a part of it that begins inside a group.
void expect_values(const std::vector<TestTensor>& tensors, marlin_format format, const Value& expected) {
  const auto opened = must(open_tensors(tensors));
  const Layer layer = opened->layers()[0];
  ASSERT_TRUE(layer.status.ok()) << layer.status.message();
  EXPECT_EQ(layer.format, format);
  EXPECT_EQ(layer.group_size, kG);
  auto source = opened->source(0, 0, {}).take();
  for (const int64_t stripe : {int64_t{1}, kN}) {
    const auto values = decode_all(*source, stripe).value();
    for (int64_t n = 0; n < kN; ++n)
      for (int64_t k = 0; k < kK; ++k) ASSERT_EQ(values[static_cast<size_t>(n * kK + k)], expected(n, k)) << n << " " << k;
  }
  for (const int64_t first : {kG, int64_t{8}}) {
    const auto part = must(make_shard(opened->source(0, 0, {}).take(), 1, 2, first, kK - first));
    const auto values = decode_all(*part).value();
    for (int64_t n = 1; n < kN; ++n)
      for (int64_t k = first; k < kK; ++k)
        ASSERT_EQ(values[static_cast<size_t>((n - 1) * (kK - first) + k - first)], expected(n, k)) << n << " " << k;
  }
}

TEST(CheckpointTorchao, PlainNibblesAreInTwosComplement) {
  const float scales[] = {0.5f, 1, 2, 4, 8, 16}, zeros[] = {0.25f, -1, 3, 0, 5, -7};
  expect_values(plain(), MARLIN_FORMAT_INT4, [&](int64_t n, int64_t k) {
    const int byte = static_cast<uint8_t>((n * kK / 2 + k / 2) * 37), nibble = k % 2 == 0 ? byte & 15 : byte >> 4;
    const int q = nibble < 8 ? nibble : nibble - 16;
    return static_cast<float>(q) * scales[k / kG * kN + n] + zeros[k / kG * kN + n];  // exact in float32
  });
}

TEST(CheckpointTorchao, BytesHaveIntegerZeros) {
  const float scales[] = {0.5f, 1, 2, 4, 8, 16};
  const int zeros[] = {0, 5, -128, 127, -1, 1};
  expect_values(bytes(), MARLIN_FORMAT_UINT8, [&](int64_t n, int64_t k) {
    const int q = static_cast<int8_t>((n * kK + k) * 5);
    const int64_t group = n * (kK / kG) + k / kG;
    return static_cast<float>(q - zeros[group]) * scales[group];
  });
}

TEST(CheckpointTorchao, ZerosThatFloat32DoesNotHoldAreRefused) {
  auto tensors = plain();
  tensors[2].data = bf16({0.25f, -1, 3, 0, 0x1p-30f, -7});  // 2^-30 - 8 * 8
  const auto opened = open_tensors(tensors);
  ASSERT_TRUE(opened.value()->layers()[0].status.ok()) << "the headers do not tell";
  EXPECT_THAT(opened.value()->source(0, 0, {}).status(),
              Fails(MARLIN_E_UNSUPPORTED,
                    AllOf(HasSubstr("'l._weight_zero_point'"), HasSubstr("row 1, group 1: zero - 8 * scale is not exact"))));
}

TEST(CheckpointTorchao, UnreadKindsNameTheReason) {
  const auto refused = [](std::vector<TestTensor> tensors, size_t changed, TestTensor to, marlin_status code,
                          const char* what) {
    tensors[changed] = std::move(to);
    tensors.push_back({"other.weight", "F16", "1,2", std::string(4, '\0')});
    const auto opened = must(open_tensors(tensors));
    size_t listed = 0;
    for (const Layer& layer : opened->layers()) {
      if (layer.name != "l") continue;
      ++listed;
      EXPECT_THAT(layer.status, Fails(code, AllOf(HasSubstr("f.safetensors: byte "), HasSubstr(what))));
    }
    EXPECT_EQ(listed, 1u);
  };
  const std::string zeros(48, '\0');
  refused(plain(), 0, {"l._weight_qdata", "I32", "1,2,3,4", std::string(96, '\0')}, MARLIN_E_UNSUPPORTED,
          "expected I8 codes in two dimensions, as Int4Tensor (plain) and IntxUnpackedToInt8Tensor have them, found I32 in 4");
  refused(plain(), 1, {"l.other", "BF16", "2,3", zeros.substr(0, 12)}, MARLIN_E_NOT_FOUND, "'l._weight_scale' is in none");
  refused(plain(), 2, {"l.other", "BF16", "2,3", zeros.substr(0, 12)}, MARLIN_E_NOT_FOUND, "'l._weight_zero_point' is in none");
  refused(plain(), 1, {"l._weight_scale", "BF16", "3,3", zeros.substr(0, 18)}, MARLIN_E_SHAPE,
          "expected groups that divide K = 64, found 3 of them");
  refused(plain(), 1, {"l._weight_scale", "BF16", "2,2", zeros.substr(0, 8)}, MARLIN_E_SHAPE, "expected [2, 3], found [2, 2]");
  refused(plain(), 1, {"l._weight_scale", "F32", "2,3", zeros.substr(0, 24)}, MARLIN_E_UNSUPPORTED,
          "expected F16, BF16, found F32");
  refused(plain(), 2, {"l._weight_zero_point", "BF16", "6", zeros.substr(0, 12)}, MARLIN_E_SHAPE,
          "expected two dimensions, found 1");
  refused(bytes(), 1, {"l._weight_scale", "BF16", "3,4", zeros.substr(0, 24)}, MARLIN_E_SHAPE, "expected [3, 4], found [3, 2]");
}

}  // namespace
}  // namespace metal_marlin::testing::checkpoint_torchao_tests
