// Weights that were packed from GGUF's blocks come back as the same blocks.
#include "support.h"
#include "test.h"

namespace abi_test::blocks_tests {
namespace {

constexpr uint32_t kAdditive = MARLIN_PACK_ADDITIVE_ZEROS, kTwoLevel = MARLIN_PACK_TWO_LEVEL_SCALES;
struct Type {
  const char* name;
  marlin_format format;
  uint32_t flags;
  int64_t elements, bytes;
};
constexpr Type kTypes[] = {
    {"Q4_0", MARLIN_FORMAT_INT4, 0, 32, 18},
    {"Q4_1", MARLIN_FORMAT_INT4, kAdditive, 32, 20},
    {"Q5_0", MARLIN_FORMAT_INT5, 0, 32, 22},
    {"Q5_1", MARLIN_FORMAT_INT5, kAdditive, 32, 24},
    {"Q8_0", MARLIN_FORMAT_INT8, 0, 32, 34},
    {"Q2_K", MARLIN_FORMAT_INT2, kAdditive | kTwoLevel, 256, 84},
    {"Q3_K", MARLIN_FORMAT_INT3, kTwoLevel, 256, 110},
    {"Q4_K", MARLIN_FORMAT_INT4, kAdditive | kTwoLevel, 256, 144},
    {"Q5_K", MARLIN_FORMAT_INT5, kAdditive | kTwoLevel, 256, 176},
    {"Q6_K", MARLIN_FORMAT_INT6, kTwoLevel, 256, 210},
    {"IQ4_NL", MARLIN_FORMAT_IQ4, 0, 32, 18},
    {"IQ4_XS", MARLIN_FORMAT_IQ4, kTwoLevel, 256, 136},
    {"MXFP4", MARLIN_FORMAT_MXFP4, 0, 32, 17},
    {"NVFP4", MARLIN_FORMAT_NVFP4, 0, 64, 36},
};

/// Any bytes but -0 of FP4 and scales that ggml does not know, which a packed copy does not keep.
std::vector<uint8_t> random_blocks(const Type& type, int64_t count) {
  std::mt19937 random(static_cast<unsigned>(7 * type.bytes + type.format));
  std::vector<uint8_t> blocks(static_cast<size_t>(count * type.bytes));
  const bool fp4 = type.format == MARLIN_FORMAT_MXFP4 || type.format == MARLIN_FORMAT_NVFP4;
  for (size_t i = 0; i < blocks.size(); ++i) {
    uint8_t& byte = blocks[i] = static_cast<uint8_t>(random());
    if (!fp4) continue;
    const size_t at = i % static_cast<size_t>(type.bytes), scales = type.format == MARLIN_FORMAT_NVFP4 ? 4 : 1;
    if (at < scales) {
      byte &= type.format == MARLIN_FORMAT_NVFP4 ? 0x3f : 0x7f;
      continue;
    }
    if ((byte & 15) == 8) byte &= 0xf0;
    if (byte >> 4 == 8) byte &= 0x0f;
  }
  return blocks;
}

marlin_pack_desc desc_of(const Type& type, const std::vector<uint8_t>& blocks, int64_t n, int64_t k, int64_t first = 0) {
  auto d = mm::make<marlin_pack_desc>();
  d.format = type.format;
  d.layout = MARLIN_LAYOUT_GGUF;
  d.flags = type.flags;
  d.n = n;
  d.k = k;
  const int64_t row = k / type.elements * type.bytes;
  d.values = mm::matrix_view(blocks.data() + first * row, n, row);
  return d;
}

class Blocks : public testing::TestWithParam<Type> {
 protected:
  const mm::context context{kBackend};
};
INSTANTIATE_TEST_SUITE_P(All, Blocks, testing::ValuesIn(kTypes), [](const auto& info) { return std::string(info.param.name); });

// 150 rows are three panels, the last one not full; 3 blocks are no whole superblock for most types.
TEST_P(Blocks, ComeBack) {
  const Type& type = GetParam();
  const int64_t n = 150, k = 3 * type.elements, row = 3 * type.bytes;
  const std::vector<uint8_t> blocks = random_blocks(type, 3 * n);
  const mm::weights weights = mm::pack(context, desc_of(type, blocks, n, k));
  std::vector<uint8_t> all(blocks.size());
  const marlin_matrix out = mm::matrix_view(all.data(), n, row);
  EXPECT_OK(marlin_weights_unpack, nullptr, weights.get(), nullptr, int64_t{0}, &out);
  EXPECT_EQ(all, blocks);

  // Some rows, with bytes between them that stay.
  const int64_t stride = row + 5, first = 61, rows = 70;
  std::vector<uint8_t> some(static_cast<size_t>(rows * stride), 0xa5);
  const marlin_matrix part = mm::matrix_view(some.data(), rows, row, stride);
  EXPECT_OK(marlin_weights_unpack, nullptr, weights.get(), nullptr, first, &part);
  for (int64_t i = 0; i < rows; ++i) {
    EXPECT_TRUE(std::equal(&some[i * stride], &some[i * stride] + row, &blocks[(first + i) * row])) << "row " << i;
    EXPECT_EQ(std::count(&some[i * stride] + row, some.data() + (i + 1) * stride, 0xa5), 5);
  }
}

TEST_P(Blocks, OfExpertsComeBack) {
  const Type& type = GetParam();
  const int64_t n = 20, k = 2 * type.elements, row = 2 * type.bytes;
  const std::vector<uint8_t> blocks = random_blocks(type, 3 * n * 2);
  std::vector<marlin_pack_desc> parts;
  for (int64_t expert = 0; expert < 3; ++expert) parts.push_back(desc_of(type, blocks, n, k, expert * n));
  const mm::weights weights = mm::pack(context, parts, 3);
  std::vector<uint8_t> some(static_cast<size_t>(35 * row));
  const marlin_matrix out = mm::matrix_view(some.data(), 35, row);
  EXPECT_OK(marlin_weights_unpack, nullptr, weights.get(), nullptr, int64_t{15}, &out);
  EXPECT_TRUE(std::equal(some.begin(), some.end(), blocks.begin() + 15 * row));
}

TEST_P(Blocks, AreAskedForAsTheyAre) {
  const Type& type = GetParam();
  const int64_t row = 2 * type.bytes;
  const std::vector<uint8_t> blocks = random_blocks(type, 8);
  const mm::weights weights = mm::pack(context, desc_of(type, blocks, 4, 2 * type.elements));
  std::vector<uint8_t> bytes(static_cast<size_t>(8 * row));
  const auto fails = [&](const marlin_matrix& out, int64_t first, marlin_status status, const char* mentioned) {
    EXPECT_FAILS(status, mentioned, marlin_weights_unpack, nullptr, weights.get(), nullptr, first, &out);
  };
  fails(mm::matrix_view(bytes.data(), 4, row - 1), 0, MARLIN_E_SHAPE, "expected the bytes of a row of blocks");
  fails(mm::matrix_view(bytes.data(), 4, row), 1, MARLIN_E_ARGUMENT, "outside [0, 4)");
  const int32_t ids[] = {0, 1, 2, 3};
  const marlin_matrix row_ids = mm::matrix_view(ids, 4, 1), out = mm::matrix_view(bytes.data(), 4, row);
  EXPECT_FAILS(MARLIN_E_ARGUMENT, "out.dtype", marlin_weights_unpack, nullptr, weights.get(), &row_ids, int64_t{0}, &out);
}

/// Blocks would be those of other weights. A scale of 1 changes nothing.
TEST_P(Blocks, WithATensorScaleAreRefused) {
  const Type& type = GetParam();
  const int64_t n = 4, k = 2 * type.elements, row = 2 * type.bytes;
  const std::vector<uint8_t> blocks = random_blocks(type, 2 * 2 * n);
  std::vector<uint8_t> some(static_cast<size_t>(2 * n * row));
  const marlin_matrix out = mm::matrix_view(some.data(), 2 * n, row);
  const float one = 1, two = 2, half = 0.5f;
  const auto with = [&](const float* first, const float* second, uint32_t flags) {
    std::vector<marlin_pack_desc> parts = {desc_of(type, blocks, n, k), desc_of(type, blocks, n, k, n)};
    const float* const scales[] = {first, second};
    for (size_t e = 0; e < 2; ++e) {
      parts[e].flags |= flags;
      if (scales[e] != nullptr) parts[e].tensor_scale = mm::matrix_view(scales[e], 1, 1);
    }
    return mm::pack(context, parts, 2);
  };
  if ((type.flags & kAdditive) != 0) return;  // which take no tensor scale
  for (const uint32_t flags : {0u, static_cast<uint32_t>(MARLIN_PACK_DIVIDE_SCALE)}) {
    EXPECT_OK(marlin_weights_unpack, nullptr, with(&one, nullptr, flags).get(), nullptr, int64_t{0}, &out);
    for (const auto& [first, second] : {std::pair(&two, &one), {&one, &half}, {&two, &two}})
      EXPECT_FAILS(MARLIN_E_UNSUPPORTED, "a tensor scale", marlin_weights_unpack, nullptr, with(first, second, flags).get(),
                   nullptr, int64_t{0}, &out);
  }
}

TEST(BlocksOfNoType, AreRefused) {
  const mm::context context{kBackend};
  const auto values = numbers(64 * 64, 1);
  std::vector<uint8_t> bytes(64 * 64);
  const marlin_matrix out = mm::matrix_view(bytes.data(), 64, 64);
  const mm::weights fp4 = quantized(context, 64, 64, 1, MARLIN_FORMAT_FP4);
  EXPECT_FAILS(MARLIN_E_UNSUPPORTED, "no block type", marlin_weights_unpack, nullptr, fp4.get(), nullptr, int64_t{0}, &out);
  marlin_pack_desc pruned = pack_desc(values, 64, 64);
  pruned.group_size = 32;
  pruned.flags = MARLIN_PACK_PRUNE_2_4;
  const mm::weights sparse = mm::pack(context, pruned);
  const marlin_matrix rows = mm::matrix_view(bytes.data(), 64, 2 * 18);
  EXPECT_FAILS(MARLIN_E_UNSUPPORTED, "2:4 sparse", marlin_weights_unpack, nullptr, sparse.get(), nullptr, int64_t{0}, &rows);
}

// The second expert has a group index, which no block holds: nothing is written before that is known.
TEST(BlocksOfNoType, OfOneExpertLeaveTheOthersUnwritten) {
  const mm::context context{kBackend};
  const int64_t n = 8, k = 64;
  const std::vector<uint8_t> codes(static_cast<size_t>(n * k / 2), 0x21);
  const std::vector<int16_t> scales(static_cast<size_t>(n * 2), 0x3c00);
  std::vector<int32_t> index[2];
  for (int32_t i = 0; i < k; ++i) index[0].push_back(i / 32), index[1].push_back(i % 2);
  std::vector<marlin_pack_desc> parts;
  for (const auto& of_expert : index) {
    auto d = mm::make<marlin_pack_desc>();
    d.format = MARLIN_FORMAT_INT4;
    d.layout = MARLIN_LAYOUT_ROWS;
    d.n = n;
    d.k = k;
    d.group_size = 32;
    d.values = mm::matrix_view(codes.data(), n, k / 2);
    d.scales = mm::matrix_view(scales.data(), n, 2);
    d.scales.dtype = MARLIN_F16;
    d.group_index = mm::matrix_view(of_expert.data(), 1, k);
    parts.push_back(d);
  }
  const mm::weights weights = mm::pack(context, parts, 2);
  std::vector<uint8_t> blocks(static_cast<size_t>(2 * n * 36), 0xa5);
  const marlin_matrix all = mm::matrix_view(blocks.data(), 2 * n, 36), first = mm::matrix_view(blocks.data(), n, 36);
  EXPECT_FAILS(MARLIN_E_UNSUPPORTED, "act-order", marlin_weights_unpack, nullptr, weights.get(), nullptr, int64_t{0}, &all);
  EXPECT_EQ(std::count(blocks.begin(), blocks.end(), 0xa5), std::ssize(blocks));
  EXPECT_OK(marlin_weights_unpack, nullptr, weights.get(), nullptr, int64_t{0}, &first);
}

}  // namespace
}  // namespace abi_test::blocks_tests
