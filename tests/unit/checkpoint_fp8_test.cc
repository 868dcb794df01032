// E4M3 codes: the shapes of scales, and what is refused; and the flattened blocks of bitsandbytes.
#include "checkpoint_files.h"
#include "fails.h"
#include "formats/codecs.h"
#include "sources/shard.h"
#include "test.h"

namespace metal_marlin::testing {
namespace {

constexpr int64_t kN = 200, kK = 300;

std::string config_of(const std::string& members) { return R"({"quantization_config":{"quant_method":"fp8")" + members + "}}"; }

std::string floats(size_t count) {
  std::string bytes;
  for (size_t i = 0; i < count; ++i) bytes += bytes_of<float>({0.5f * static_cast<float>(i + 1)});
  return bytes;
}

/// Codes of 1 with scales of this shape, 0.5 times their number.
Result<std::unique_ptr<Checkpoint>> open_fp8(const std::string& shape, size_t scales, const std::string& members,
                                             const char* name = "l.weight_scale_inv") {
  return open_memory({{"f.safetensors", safetensors({{"l.weight", "F8_E4M3", "200,300", std::string(kN * kK, '\x38')},
                                                     {name, "F32", shape, floats(scales)}})},
                      {"config.json", config_of(members)}});
}

TEST(CheckpointFp8, ShapesOfScales) {
  struct Case {
    const char *shape, *members;
    size_t scales;
    int64_t rows, columns;  // of a block
  };
  for (const Case& c : {Case{"", "", 1, kN, kK}, Case{"1", "", 1, kN, kK}, Case{"1,1", "", 1, kN, kK},
                        Case{"200", "", 200, 1, kK}, Case{"200,1", "", 200, 1, kK}, Case{"2,3", "", 6, 128, 128},
                        Case{"2,3", R"(,"weight_block_size":[128,128])", 6, 128, 128},
                        Case{"7,5", R"(,"weight_block_size":[32,64])", 35, 32, 64}}) {
    SCOPED_TRACE(c.shape);
    const auto opened = must(open_fp8(c.shape, c.scales, c.members));
    const Layer& layer = opened->layers()[0];
    ASSERT_TRUE(layer.status.ok()) << layer.status.message();
    EXPECT_EQ(layer.format, MARLIN_FORMAT_FP8);
    const auto values = must(decode_all(*opened->source(0, 0, {}).value()));
    const int64_t of_row = (kK + c.columns - 1) / c.columns;
    for (int64_t n = 0; n < kN; ++n)
      for (int64_t k = 0; k < kK; ++k) {
        const auto number = static_cast<float>(n / c.rows * of_row + k / c.columns + 1);
        ASSERT_EQ(values[static_cast<size_t>(n * kK + k)], 0.5f * number) << n << ", " << k;
      }
  }
}

TEST(CheckpointFp8, RefusedScalesNameTheReason) {
  const auto refused = [](const std::string& shape, size_t scales, const std::string& members, marlin_status code,
                          const char* what) {
    const auto opened = must(open_fp8(shape, scales, members));
    EXPECT_THAT(opened->layers()[0].status, Fails(code, HasSubstr(what)));
  };
  refused("3,3", 9, "", MARLIN_E_SHAPE, "l.weight_scale_inv': expected [2, 3], found [3, 3]");
  refused("2,3", 6, R"(,"weight_block_size":[64,64])", MARLIN_E_SHAPE, "expected [4, 5], found [2, 3]");
  refused("2,7", 14, R"(,"weight_block_size":[128,48])", MARLIN_E_UNSUPPORTED, "group_size: expected 16, 32, 64");
  refused("100", 100, "", MARLIN_E_SHAPE, "found [100]");
  const auto none = open_memory({{"f.safetensors", safetensors({{"l.weight", "F8_E4M3", "2,2", std::string(4, '\x38')}})},
                                 {"config.json", R"({"quantization_config":{"quant_method":"fp8"}})"}});
  EXPECT_EQ(none.value()->layers()[0].status.code(), MARLIN_E_NOT_FOUND);
}

/// [3, 48] in blocks of 64: the first block ends inside row 1.
struct Flat {
  std::string type = "U8", shape = "72,1", codes, absmax = floats(3), absmax_shape = "3", map;
  std::string state = R"({"quant_type": "nf4", "blocksize": 64, "dtype": "bfloat16", "shape": [3, 48]})";

  Flat() {
    for (int i = 0; i < 72; ++i) codes += static_cast<char>((2 * i % 16) << 4 | (2 * i + 1) % 16);
    for (const float value : kNf4) map += bytes_of<float>({value});
  }
  Result<std::unique_ptr<Checkpoint>> open() const {
    return open_memory({{"f.safetensors", safetensors({{"l.weight", type, shape, codes},
                                                       {"l.weight.absmax", "F32", absmax_shape, absmax},
                                                       {"l.weight.quant_map", "F32", "16", map},
                                                       {"l.weight.quant_state.bitsandbytes__nf4", "U8",
                                                        std::to_string(state.size()), state}})}});
  }
};

TEST(CheckpointBitsandbytes, BlocksRunAcrossRows) {
  Flat flat;
  for (const auto& [type, shape] : {std::pair{"U8", "72,1"}, {"BF16", "36,1"}, {"F32", "18,1"}}) {
    flat.type = type;
    flat.shape = shape;
    const auto opened = must(flat.open());
    const Layer& layer = opened->layers()[0];
    ASSERT_TRUE(layer.status.ok()) << layer.status.message();
    EXPECT_EQ(layer.format, MARLIN_FORMAT_NF4);
    EXPECT_EQ(layer.group_size, 16);
    const auto values = must(decode_all(*opened->source(0, 0, {}).value()));
    for (size_t e = 0; e < 144; ++e)
      ASSERT_EQ(values[e], kNf4[e % 16] * (0.5f * static_cast<float>(e / 64 + 1))) << type << " element " << e;
  }
  flat.map.replace(0, 4, bytes_of<float>({-2}));
  const auto own = flat.open();
  EXPECT_EQ(own.value()->layers()[0].format, MARLIN_FORMAT_CODEBOOK4);
  EXPECT_EQ(decode_all(*own.value()->source(0, 0, {}).value()).value()[0], -1.0f);
}

/// Rows of 24, 12 or 9 elements: the parts of rows that lie in one block of 64 have 8, 4 or 1 elements.
TEST(CheckpointBitsandbytes, ShortPartsOfRowsHaveAGroupIndex) {
  for (const int64_t k : {24, 12, 9}) {
    SCOPED_TRACE(k);
    Flat flat;
    flat.state = R"({"blocksize":64,"shape":[)" + std::to_string(144 / k) + "," + std::to_string(k) + "]}";
    const auto opened = must(flat.open());
    ASSERT_TRUE(opened->layers()[0].status.ok()) << opened->layers()[0].status.message();
    auto source = opened->source(0, 0, {}).take();
    const auto values = must(decode_all(*source, 1));
    const auto expected = [](size_t e) { return kNf4[e % 16] * (0.5f * static_cast<float>(e / 64 + 1)); };
    for (size_t e = 0; e < 144; ++e) ASSERT_EQ(values[e], expected(e)) << "element " << e;
    const auto part = must(make_shard(std::move(source), 2, 3, 5, 3));
    const auto few = must(decode_all(*part));
    for (size_t i = 0; i < 9; ++i) ASSERT_EQ(few[i], expected(static_cast<size_t>(k) * (2 + i / 3) + 5 + i % 3)) << i;
  }
}

/// Each value is kNf4[code] * (map[byte] * absmax + offset), rounded once.
TEST(CheckpointBitsandbytes, NestedScalesAreExact) {
  const Flat flat;
  std::string map, absmax;
  for (int i = 0; i < 256; ++i) map += bytes_of<float>({static_cast<float>(i - 128) / 127});
  const float units[] = {0.1f, 1.7f};
  for (const float unit : units) absmax += bytes_of<float>({unit});
  const std::string state =
      R"({"quant_type":"nf4","blocksize":64,"shape":[3,48],"nested_blocksize":2,"nested_offset":0.30000001192092896})";
  const std::string bytes("\x00\x90\xff", 3);
  std::vector<TestTensor> tensors = {{"l.weight", "U8", "72,1", flat.codes},
                                     {"l.weight.absmax", "U8", "3", bytes},
                                     {"l.weight.quant_map", "F32", "16", flat.map},
                                     {"l.weight.nested_quant_map", "F32", "256", map},
                                     {"l.weight.nested_absmax", "F32", "2", absmax},
                                     {"l.weight.quant_state.bitsandbytes__nf4", "U8", std::to_string(state.size()), state}};
  const auto opened = must(open_memory({{"f.safetensors", safetensors(tensors)}}));
  const Layer layer = opened->layers()[0];
  ASSERT_TRUE(layer.status.ok()) << layer.status.message();
  const auto values = must(decode_all(*opened->source(0, 0, {}).value()));
  for (size_t e = 0; e < 144; ++e) {
    const int byte = static_cast<unsigned char>(bytes[e / 64]);
    const auto unit = static_cast<long double>(static_cast<float>(byte - 128) / 127);
    const long double scale = unit * static_cast<long double>(units[e / 128]) + static_cast<long double>(0.3f);
    ASSERT_EQ(values[e], static_cast<float>(static_cast<long double>(kNf4[e % 16]) * scale)) << "element " << e;
  }
  tensors[4] = {"l.weight.nested_absmax", "F32", "1", absmax.substr(0, 4)};
  const auto few = open_memory({{"f.safetensors", safetensors(tensors)}});
  EXPECT_EQ(few.value()->layers()[0].status.code(), MARLIN_E_SHAPE);
}

TEST(CheckpointBitsandbytes, RefusedStatesNameTheReason) {
  const auto refused = [](const Flat& flat, marlin_status code, const char* what) {
    const auto opened = must(flat.open());
    EXPECT_THAT(opened->layers()[0].status, Fails(code, HasSubstr(what)));
  };
  const auto with_state = [](const char* state) {
    Flat flat;
    flat.state = state;
    return flat;
  };
  refused(with_state(R"({"blocksize":64,"shape":[3,48],"nested_blocksize":256})"), MARLIN_E_FORMAT,
          "expected a nested_blocksize up to 2147483647 and a nested_offset");
  refused(with_state(R"({"blocksize":64,"shape":[3,48],"nested_blocksize":256,"nested_offset":0})"), MARLIN_E_NOT_FOUND,
          "nested_absmax");
  refused(with_state(R"({"blocksize":64,"shape":[3]})"), MARLIN_E_FORMAT, "expected a blocksize and a shape of two numbers");
  refused(with_state(R"({"blocksize":0,"shape":[3,48]})"), MARLIN_E_FORMAT, "expected a blocksize");
  refused(with_state(R"({"blocksize":64,"shape":[3,99999999999]})"), MARLIN_E_FORMAT, "expected a blocksize");
  refused(with_state("{"), MARLIN_E_FORMAT, "f.safetensors");
  refused(with_state(R"({"blocksize":64,"shape":[4,48]})"), MARLIN_E_SHAPE, "expected 96 bytes for [4, 48], found 72");
  refused(with_state(R"({"blocksize":24,"shape":[3,48]})"), MARLIN_E_UNSUPPORTED, "group_size: expected 16, 32, 64");
  Flat few;
  few.absmax_shape = "2";
  few.absmax.resize(8);
  refused(few, MARLIN_E_SHAPE, "'l.weight.absmax': expected [1, 3], found [2]");
}

}  // namespace
}  // namespace metal_marlin::testing
