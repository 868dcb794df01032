// UINT8 that is read as INT8 keeps its values, or says that it does not.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "formats/codecs.h"
#include "formats/decode.h"
#include "formats/signed_bytes.h"
#include "must.h"

namespace signed_bytes_tests {
namespace {

using namespace metal_marlin;

class Bytes final : public WeightSource {
 public:
  Bytes(ZeroKind zeros, ScaleType type, int64_t group, uint32_t seed) {
    meta_.format = MARLIN_UINT8;
    meta_.n = 3;
    meta_.k = 200;
    meta_.group_size = group;
    meta_.groups = (meta_.k + group - 1) / group;
    meta_.zero_kind = zeros;
    meta_.scale_type = meta_.zero_type = type;
    std::mt19937 random(seed);
    for (int64_t i = 0; i < meta_.n * meta_.k; ++i) all.codes.push_back(static_cast<uint8_t>(random()));
    for (int64_t i = 0; i < meta_.n * meta_.groups; ++i) {
      const float scale = static_cast<float>(1 + random() % 1000) * 0x1p-17f;
      push(scale, all.scales);
      if (zeros == ZeroKind::integer) all.zeros.push_back(static_cast<uint8_t>(random()));
      if (zeros == ZeroKind::additive) push(-static_cast<float>(random() % 256) * scale, all.zeros);
    }
  }
  void push(float value, std::vector<uint8_t>& to) const {
    uint8_t bytes[4];
    encode_floats(scale_dtype(meta_.scale_type), &value, 1, bytes);
    to.insert(to.end(), bytes, bytes + scale_bytes(meta_.scale_type));
  }
  Status read(int64_t first, int64_t count, Stripe& out) const override {
    EXPECT_EQ(first, 0);
    EXPECT_EQ(count, meta_.n);
    out = all;
    return {};
  }
  Stripe all;
};

std::vector<float> decoded(const WeightMeta& meta, const Stripe& stripe) {
  std::vector<float> values(static_cast<size_t>(meta.n * meta.k));
  decode_rows(meta, stripe, 0, meta.n, values.data());
  return values;
}

TEST(SignedBytes, KeepEveryBit) {
  for (const ZeroKind zeros : {ZeroKind::none, ZeroKind::integer, ZeroKind::additive})
    for (const ScaleType type : {ScaleType::f16, ScaleType::bf16})
      for (const int64_t group : {32, 64, 128, 200}) {
        const Bytes source(zeros, type, group, static_cast<uint32_t>(group));
        const bool taken = SignedBytes::takes(source.meta());
        EXPECT_EQ(taken, zeros == ZeroKind::none || group != 200);
        if (!taken) continue;
        const SignedBytes bytes(source);
        Stripe stripe;
        must(bytes.read(0, 3, stripe));
        EXPECT_EQ(bytes.meta().format, MARLIN_INT8);
        const auto expected = decoded(source.meta(), source.all), found = decoded(bytes.meta(), stripe);
        EXPECT_EQ(std::memcmp(expected.data(), found.data(), expected.size() * sizeof(float)), 0) << group;
      }
}

TEST(SignedBytes, RefuseWhatFloat32DoesNotHold) {
  for (const float scale : {-0x1p-10f, 0x1p127f}) {
    Bytes source(ZeroKind::integer, ScaleType::f32, 32, 1);
    std::memcpy(source.all.scales.data(), &scale, sizeof scale);
    source.all.zeros[0] = 0;
    const SignedBytes bytes(source);
    Stripe stripe;
    EXPECT_EQ(bytes.read(0, 3, stripe).code(), MARLIN_E_UNSUPPORTED) << scale;
    EXPECT_FALSE(bytes.is_exact());
  }
  Bytes source(ZeroKind::additive, ScaleType::f32, 32, 1);
  const float zero = 0x1.000002p20f;
  std::memcpy(source.all.zeros.data(), &zero, sizeof zero);
  const SignedBytes bytes(source);
  Stripe stripe;
  EXPECT_EQ(bytes.read(0, 3, stripe).code(), MARLIN_E_UNSUPPORTED);
}

}  // namespace
}  // namespace signed_bytes_tests
