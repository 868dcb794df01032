// The parts of converting that write text and share tensors out among files.
#include <sys/stat.h>

#include "checkpoint_operands.h"
#include "checkpoints/convert/config_text.h"
#include "checkpoints/convert/json_writer.h"
#include "checkpoints/convert/output_file.h"
#include "checkpoints/convert/output_plan.h"
#include "failing_calls.h"
#include "formats/format_table.h"
#include "layouts/encoder.h"
#include "layouts/gguf_types.h"
#include "layouts/layout_table.h"
#include "layouts/operands.h"
#include "temporary_folder.h"
#include "test.h"

namespace metal_marlin {
namespace {

std::string rewritten(std::string_view config) {
  return must(config_text(config, "quantization", [](JsonWriter& out) { out.begin('{').end('}'); }));
}

TEST(ConfigText, HasTheNewQuantizationInPlaceOfTheOld) {
  EXPECT_EQ(rewritten(""), "{\n  \"quantization\": {}\n}\n");
  EXPECT_EQ(rewritten(R"({"a": 1, "quantization_config": {"bits": [4]}, "b": [], "c": [{"d": null}]})"),
            "{\n  \"a\": 1,\n  \"b\": [],\n  \"c\": [\n    {\n      \"d\": null\n    }\n  ],\n  \"quantization\": {}\n}\n");
}

TEST(ConfigText, LosesTheOldQuantizationOfTheTextAloneElsewhere) {
  EXPECT_EQ(rewritten(R"({"text_config": {"quantization_config": 1, "a": 2}, "vision_config": {"quantization_config": 3}})"),
            "{\n  \"text_config\": {\n    \"a\": 2\n  },\n  \"vision_config\": {\n    \"quantization_config\": 3\n  },\n"
            "  \"quantization\": {}\n}\n");
  EXPECT_EQ(
      rewritten(R"({"text_config": {"a": {"quantization_config": 1}}})"),
      "{\n  \"text_config\": {\n    \"a\": {\n      \"quantization_config\": 1\n    }\n  },\n  \"quantization\": {}\n}\n");
}

TEST(ConfigText, IsThatOfAnObject) {
  for (const char* const bad : {"[]", "1", "\"a\"", "[{}]"})
    EXPECT_EQ(config_text(bad, "quantization", [](JsonWriter&) {}).status().code(), MARLIN_E_FORMAT) << bad;
  const Status malformed = config_text("{\"a\" 1}", "quantization", [](JsonWriter&) {}).status();
  EXPECT_EQ(std::string_view(malformed.message()).substr(0, 38), "config.json: byte 5: malformed JSON ne");
}

TEST(JsonStrings, EscapeWhatJsonForbids) {
  std::string out;
  append_json_string(std::string_view("\0\a\b\t\n\v\f\r\x0e\x1f \"\\/\x7f\xc3\xa9", 17), out);
  EXPECT_EQ(out, R"("\u0000\u0007\b\t\n\u000b\f\r\u000e\u001f \"\\/)"
                 "\x7f\xc3\xa9\"");
}

/// The files of tensors of these sizes, each a group of its own.
std::vector<size_t> split(const std::vector<uint64_t>& sizes, uint64_t limit, size_t files) {
  std::vector<OutputTensor> tensors(sizes.size());
  std::vector<std::vector<size_t>> groups;
  for (size_t i = 0; i < sizes.size(); ++i) {
    tensors[i].bytes = sizes[i];
    groups.push_back({i});
  }
  EXPECT_EQ(split_by_size(tensors, groups, limit), files);
  std::vector<size_t> places;
  for (const OutputTensor& tensor : tensors) places.push_back(tensor.file);
  return places;
}

TEST(SplitBySize, FillsAFileUpToItsLimit) {
  using Places = std::vector<size_t>;
  EXPECT_EQ(split({}, 10, 1), Places());
  EXPECT_EQ(split({4, 6, 1}, 10, 2), (Places{0, 0, 1}));
  EXPECT_EQ(split({4, 7, 3}, 10, 2), (Places{0, 1, 1}));
  EXPECT_EQ(split({11, 1, 12, 1}, 10, 4), (Places{0, 1, 2, 3})) << "one alone may be larger";
  EXPECT_EQ(split({0, 10, 0, 1}, 10, 2), (Places{0, 0, 0, 1}));
  EXPECT_EQ(split({1, UINT64_MAX, 1}, UINT64_MAX, 3), (Places{0, 1, 2})) << "sums do not wrap";
}

TEST(SplitBySize, LeavesAGroupTogether) {
  std::vector<OutputTensor> tensors(4);
  for (OutputTensor& tensor : tensors) tensor.bytes = 3;
  const std::vector<std::vector<size_t>> groups = {{0}, {1, 3}, {2}};
  EXPECT_EQ(split_by_size(tensors, groups, 8), 3u);
  const size_t expected[] = {0, 1, 2, 1};
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(tensors[i].file, expected[i]) << i;
}

TEST(WholeGroups, AreWhatEncodersWant) {
  WeightMeta meta;
  meta.format = MARLIN_FORMAT_INT4;
  meta.k = 64, meta.group_size = 32, meta.groups = 2;
  EXPECT_TRUE(expect_whole_groups(meta, "it").ok());
  meta.k = 65, meta.groups = 3;
  EXPECT_EQ(expect_whole_groups(meta, "it").code(), MARLIN_E_SHAPE);
  meta.k = 30, meta.groups = 1;
  EXPECT_TRUE(expect_whole_groups(meta, "it").ok()) << "the group of a row may be longer";
  meta.format = MARLIN_FORMAT_MXFP4;
  EXPECT_EQ(expect_whole_groups(meta, "it").code(), MARLIN_E_SHAPE) << "but not where the format fixes it";
}

TEST(GgufBlocks, AreListedByName) {
  const std::string names = ", " + gguf_block_names() + ",";
  for (const char* const there : {"Q4_0", "Q8_0", "Q4_K", "Q6_K"})
    EXPECT_NE(names.find(std::string(", ") + there + ","), std::string::npos) << there;
  for (const char* const no_block : {"F32", "I8"})
    EXPECT_EQ(names.find(std::string(", ") + no_block + ","), std::string::npos) << no_block;
}

TEST(GgufBlocks, HaveGroupsOfTheirOwn) {
  const testing::Operand q("values", MARLIN_U8, {2, 36}, std::vector<uint8_t>(72));
  auto o = testing::operands(MARLIN_LAYOUT_GGUF, MARLIN_FORMAT_INT4, 2, 64, 64, q);
  const Status wrong = testing::error_of(o);
  EXPECT_EQ(wrong.code(), MARLIN_E_UNSUPPORTED);
  EXPECT_STREQ(wrong.message(), "group_size: Q4_0 has groups of 32, found 64");
  o.group_size = 32;
  EXPECT_TRUE(testing::error_of(o).ok());
}

TEST(OperandTypes, ThatNobodyKnowsHaveNoName) {
  TensorView view;
  view.name = "values";
  const std::byte byte{};
  view.data = &byte;
  for (const marlin_dtype unknown : {0, 13, -1}) {
    view.dtype = unknown;
    EXPECT_STREQ(expect_dtype(view, {MARLIN_U8}).message(), "values: dtype: expected U8, found unknown") << unknown;
  }
  view.dtype = 12;
  EXPECT_STREQ(expect_dtype(view, {MARLIN_U8, MARLIN_F32}).message(), "values: dtype: expected U8, F32, found I64");
}

/// A loss of power takes names away that were given after the folder was last synced.
TEST(SyncFolder, SyncsThatFolder) {
  const TemporaryFolder folder;
  const auto same = [](const std::pair<dev_t, ino_t>& file, const std::string& path) {
    struct stat there{};
    return ::stat(path.c_str(), &there) == 0 && file == std::pair(there.st_dev, there.st_ino);
  };
  for (const std::string& path : {folder.path(), std::string()}) {
    testing::synced().clear();
    sync_folder(path);
    ASSERT_EQ(testing::synced().size(), 1u);
    EXPECT_TRUE(same(testing::synced()[0], path.empty() ? "." : path)) << path;
  }
  testing::synced().clear();
  sync_folder(folder.path() + "/nothing");
  EXPECT_TRUE(testing::synced().empty());
}

/// Zero points of eight rows share a word; the nibbles behind the last row are 0, whatever the stripe's memory held before.
TEST(CompressedTensors, NibblesBehindTheLastRowAreZero) {
  WeightMeta meta;
  meta.format = MARLIN_FORMAT_INT4;
  meta.n = 5, meta.k = 64, meta.group_size = 32, meta.groups = 2;
  meta.zero_kind = ZeroKind::integer;
  const LayoutEncoder encoder = layout_row(LayoutId::compressed_tensors).encoder();
  const auto tensors = must(encoder.tensors(meta, 1));
  Stripe stripe;
  stripe.codes.assign(6 * 64, 5);
  stripe.scales.assign(6 * 2 * 2, 0x3c);
  stripe.zeros.assign(6 * 2, 15);  // of one row more
  std::vector<uint32_t> zeros;
  const TensorWriter out = [&](size_t tensor, uint64_t, std::span<const std::byte> bytes) {
    if (tensors[tensor].role == TensorRole::zeros) {
      zeros.resize(bytes.size() / 4);
      std::memcpy(zeros.data(), bytes.data(), bytes.size());
    }
    return Status();
  };
  ASSERT_TRUE(encoder.make(meta)->encode(stripe, 0, 5, out).ok());
  EXPECT_EQ(zeros, (std::vector<uint32_t>{0xfffff, 0xfffff}));
}

struct EncodedKind {
  LayoutId layout;
  marlin_format format;
  ScaleType scales;
  ZeroKind zeros = ZeroKind::none;
  bool sparse = false;
};

TEST(Encoders, EndWhereAWriteFails) {
  constexpr EncodedKind kKinds[] = {
      {LayoutId::compressed_tensors, MARLIN_FORMAT_INT4, ScaleType::f16, ZeroKind::integer},
      {LayoutId::compressed_tensors, MARLIN_FORMAT_INT4, ScaleType::f16},
      {LayoutId::compressed_tensors, MARLIN_FORMAT_MXFP4, ScaleType::e8m0},
      {LayoutId::compressed_tensors, MARLIN_FORMAT_NVFP4, ScaleType::e4m3},
      {LayoutId::gptq_v2, MARLIN_FORMAT_INT4, ScaleType::f16, ZeroKind::integer},
      {LayoutId::marlin_24, MARLIN_FORMAT_INT4, ScaleType::f16, ZeroKind::none, true},
      {LayoutId::gguf, MARLIN_FORMAT_NVFP4, ScaleType::e4m3},
      {LayoutId::mlx, MARLIN_FORMAT_INT4, ScaleType::f16, ZeroKind::additive},
  };
  constexpr int64_t kRows = 64, kColumns = 128;
  for (const EncodedKind& kind : kKinds) {
    SCOPED_TRACE(::testing::Message() << static_cast<int>(kind.layout) << ", " << format_name(kind.format));
    WeightMeta meta;
    meta.format = kind.format;
    meta.n = kRows, meta.k = kColumns;
    meta.group_size = kind.sparse ? kColumns : format_row(kind.format)->default_group;
    meta.groups = kColumns / meta.group_size;
    meta.scale_type = meta.zero_type = kind.scales;
    meta.zero_kind = kind.zeros;
    meta.sparse = kind.sparse;
    if (kind.format == MARLIN_FORMAT_NVFP4) meta.tensor_scales = {{0, 1}};
    const LayoutEncoder encoder = layout_row(kind.layout).encoder();
    ASSERT_TRUE(encoder.check(meta).ok()) << encoder.check(meta).message();
    const auto tensors = must(encoder.tensors(meta, 1));
    Stripe stripe;
    stripe.codes.assign(kRows * kColumns, 1);
    stripe.scales.assign(static_cast<size_t>(kRows * meta.groups) * scale_bytes(meta.scale_type), 0x3c);
    stripe.zeros.assign(stripe.scales.size(), 1);
    if (kind.sparse) stripe.kept.assign(kRows * kColumns / 4, 3);
    for (int fail_at = 0, calls = 0; fail_at <= calls; ++fail_at) {
      calls = 0;
      const TensorWriter out = [&](size_t, uint64_t, std::span<const std::byte>) {
        return calls++ == fail_at ? Status::error(MARLIN_E_FILE, "no room for write %d", fail_at) : Status();
      };
      const auto one = encoder.make(meta);
      Status status = one->encode(stripe, 0, kRows, out);
      if (status.ok()) status = one->finish(out);
      if (calls <= fail_at) {
        EXPECT_TRUE(status.ok()) << status.message();
        EXPECT_EQ(static_cast<size_t>(calls), tensors.size()) << "each tensor in one piece";
        break;
      }
      EXPECT_EQ(calls, fail_at + 1) << "no write behind the one that failed";
      EXPECT_EQ(status.message(), "no room for write " + std::to_string(fail_at));
    }
  }
}

}  // namespace
}  // namespace metal_marlin
