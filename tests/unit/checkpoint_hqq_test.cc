// HQQ: halves of the matrix in nibbles, real zeros that become additive, and what is refused.
#include "checkpoint_files.h"
#include "fails.h"
#include "formats/codecs.h"
#include "test.h"

namespace metal_marlin::testing::checkpoint_hqq_tests {
namespace {

constexpr int64_t kN = 6, kK = 64, kG = 32;
constexpr size_t kGroups = kN * kK / kG;

std::string scalar(int32_t value) { return bytes_of<int32_t>({value}); }

/// A layer of random codes with these scales and zeros, both of one type.
std::vector<TestTensor> layer(const std::string& type, const std::string& scales, const std::string& zeros) {
  std::mt19937 random(3);
  std::string codes(kGroups / 2 * kG, '\0');
  for (char& c : codes) c = static_cast<char>(random());
  const std::string column = std::to_string(kGroups) + ",1";
  return {{"l.W_q", "U8", std::to_string(kGroups / 2) + "," + std::to_string(kG), codes},
          {"l.scale", type, column, scales},
          {"l.zero", type, column, zeros},
          {"l.shape", "I64", "2", bytes_of<int64_t>({kN, kK})},
          {"l.nbits", "I32", "", scalar(4)},
          {"l.axis", "I32", "", scalar(1)},
          {"l.group_size", "I32", "", scalar(kG)},
          {"l.quant_scale", "U8", "", std::string(1, '\0')},
          {"l.quant_zero", "U8", "", std::string(1, '\0')}};
}

std::string halves(std::initializer_list<uint16_t> pattern) {
  std::string out;
  for (size_t i = 0; i < kGroups; ++i) append(out, pattern.begin()[i % pattern.size()]);
  return out;
}

std::vector<TestTensor> good_layer() {
  return layer("F16", halves({0x3800, 0x2e66, 0x0101, 0x5bff}), halves({0x4700, 0x4a71, 0x4001}));
}

Result<std::unique_ptr<Checkpoint>> open_tensors(const std::vector<TestTensor>& tensors) {
  return open_memory({{"f.safetensors", safetensors(tensors)}});
}

TEST(CheckpointHqq, AByteHoldsAnElementOfEachHalf) {
  // The worked example: G = 64, N = 2, K = 128, the first byte is 3C.
  std::string codes(128, '\0');
  codes[0] = '\x3c';
  const auto opened = open_tensors({{"l.W_q", "U8", "2,64", codes},
                                    {"l.scale", "F16", "4,1", bytes_of<uint16_t>({0x3c00, 0x3c00, 0x3800, 0x3c00})},
                                    {"l.zero", "F16", "4,1", bytes_of<uint16_t>({0, 0, 0x3e00, 0})},
                                    {"l.shape", "I64", "2", bytes_of<int64_t>({2, 128})}});
  const Layer found = opened.value()->layers()[0];
  ASSERT_TRUE(found.status.ok()) << found.status.message();
  EXPECT_EQ(found.group_size, 64);
  const auto values = decode_all(*opened.value()->source(0, 0, {}).value(), 1).value();
  EXPECT_EQ(values[0], 3);
  EXPECT_EQ(values[128], (12 - 1.5f) * 0.5f);
  EXPECT_EQ(values[129], -0.75f);
  EXPECT_EQ(values[1], 0);
}

TEST(CheckpointHqq, RealZerosRoundOnce) {
  for (const auto& [type, scale_type] : {std::pair{"F16", ScaleType::f16}, {"BF16", ScaleType::bf16}}) {
    SCOPED_TRACE(type);
    auto tensors = good_layer();
    tensors[1].dtype = tensors[2].dtype = type;
    const auto opened = open_tensors(tensors);
    const auto source = must(opened.value()->source(0, 0, {}));
    EXPECT_EQ(source->meta().zero_kind, ZeroKind::additive);
    const auto values = decode_all(*source, 4).value();
    for (size_t i = 0; i < kGroups; ++i) {
      const auto real = [&](const TestTensor& t) {
        return static_cast<double>(decode_scale(scale_type, reinterpret_cast<const uint8_t*>(t.data.data()) + 2 * i));
      };
      for (size_t k = 0; k < kG; ++k) {
        const auto byte = static_cast<uint8_t>(tensors[0].data[i % (kGroups / 2) * kG + k]);
        const int q = i < kGroups / 2 ? byte >> 4 : byte & 15;
        const double exact = (q - real(tensors[2])) * real(tensors[1]);  // at most 15 + 11 bits
        ASSERT_EQ(values[i * kG + k], static_cast<float>(exact)) << i << " " << k;
      }
    }
  }
}

TEST(CheckpointHqq, ZerosThatFloat32DoesNotHoldAreRefused) {
  // In bfloat16, 2^-100 and 1.5 * 2^-49: the product needs a bit below 2^-149, the smallest of float32.
  const auto opened = open_tensors(layer("BF16", halves({0x3f80, 0x0d80}), halves({0x3f80, 0x2740})));
  const Status status = opened.value()->layers()[0].status;
  EXPECT_THAT(status, Fails(MARLIN_E_UNSUPPORTED,
                            AllOf(HasSubstr("'l.zero'"), HasSubstr("group 1: -zero * scale is not exact in float32"))));
  const auto first = open_tensors(layer("BF16", halves({0x0d80, 0x3f80}), halves({0x2740, 0x3f80})));
  EXPECT_THAT(first.value()->source(0, 0, {}).status().message(), HasSubstr("group 0: -zero * scale is not exact in float32"));
}

/// Some writers store numbers of 16 bits in float32.
TEST(CheckpointHqq, Float32IsReadWhereItIsExact) {
  const auto values = [](const std::string& type) {
    auto tensors = good_layer();
    for (const size_t i : {size_t{1}, size_t{2}}) {
      tensors[i].dtype = type;
      tensors[i].data.clear();
      for (size_t group = 0; group < kGroups; ++group) {
        const float value = 0.5f * static_cast<float>(i + group % 5);
        type == "F32" ? append(tensors[i].data, value) : append(tensors[i].data, f32_to_f16(value));
      }
    }
    const auto opened = open_tensors(tensors);
    EXPECT_TRUE(opened.value()->layers()[0].status.ok()) << opened.value()->layers()[0].status.message();
    return decode_all(*opened.value()->source(0, 0, {}).value()).value();
  };
  EXPECT_EQ(values("F32"), values("F16"));
}

TEST(CheckpointHqq, UnreadKindsNameTheReason) {
  const auto refused = [](const std::function<void(std::vector<TestTensor>&)>& change, marlin_status code, const char* tensor,
                          const char* what) {
    auto tensors = good_layer();
    change(tensors);
    tensors.push_back({"other.weight", "F16", "1,2", std::string(4, '\0')});
    const auto opened = must(open_tensors(tensors));
    ASSERT_EQ(opened->layers().size(), 2u) << "the rest of the file is there";
    const Layer found = opened->layers()[0];
    EXPECT_EQ(found.name, "l");
    EXPECT_THAT(found.status, Fails(code, AllOf(HasSubstr("f.safetensors: byte "), HasSubstr(tensor), HasSubstr(what))));
  };
  refused([](auto& t) { t[5].data = scalar(0); }, MARLIN_E_UNSUPPORTED, "l.W_q", "expected groups along axis 1, found axis 0");
  refused(
      [](auto& t) {
        t[1].shape = t[2].shape = "1," + std::to_string(kGroups);
        t[5].name = "l.unknown";
      },
      MARLIN_E_UNSUPPORTED, "l.W_q", "found axis 0");
  refused([](auto& t) { t[4].data = scalar(3); }, MARLIN_E_UNSUPPORTED, "l.W_q", "expected codes of 4 bits, found 3 bits");
  refused(
      [](auto& t) {
        t[0].dtype = "F16";
        t[0].shape = std::to_string(kGroups / 2) + "," + std::to_string(kG / 2);
      },
      MARLIN_E_UNSUPPORTED, "l.W_q", "codes under the type F16 (view_as_float) are not read");
  refused([](auto& t) { t[8].data = "\1"; }, MARLIN_E_UNSUPPORTED, "l.W_q", "quantized (quant_zero) are not read");
  for (const size_t i : {size_t{1}, size_t{2}}) {
    refused(
        [&](auto& t) {
          t[i].dtype = "F32";
          t[i].data.clear();
          for (size_t group = 0; group < kGroups; ++group) append(t[i].data, 0.1f);
        },
        MARLIN_E_UNSUPPORTED, "l.zero", "-zero * scale is not exact in float32");
    refused([&](auto& t) { t[i].name = "l.unknown"; }, MARLIN_E_NOT_FOUND, "l.W_q",
            i == 1 ? "'l.scale' is in none of the files" : "'l.zero' is in none of the files");
  }
  refused([](auto& t) { t[3].name = "l.unknown"; }, MARLIN_E_NOT_FOUND, "l.W_q", "'l.shape' is in none of the files");
  refused([](auto& t) { t[3].data = bytes_of<int64_t>({kN, 0}); }, MARLIN_E_FORMAT, "l.shape", "found [6, 0]");
  refused([](auto& t) { t[3].data = bytes_of<int64_t>({kN + 1, kK}); }, MARLIN_E_SHAPE, "l.W_q", "expected [7, 32]");
  refused([](auto& t) { t[3].data = bytes_of<int64_t>({8, 48}); }, MARLIN_E_UNSUPPORTED, "l.W_q", "groups of 32 in [8, 48]");
  refused([](auto& t) { t[6].data = scalar(64); }, MARLIN_E_FORMAT, "l.W_q",
          "expected rows of a group of 64, found 32 columns");
  refused([](auto& t) { t[2].shape = "1," + std::to_string(kGroups); }, MARLIN_E_SHAPE, "l.zero",
          "expected [12, 1], found [1, 12]");
}

}  // namespace
}  // namespace metal_marlin::testing::checkpoint_hqq_tests
