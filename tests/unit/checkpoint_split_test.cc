// Split GGUF models: which parts make one checkpoint, and which do not.
#include "checkpoint_files.h"
#include "checkpoints/gguf_parts.h"
#include "checkpoints/tensor_table.h"
#include "convert_files.h"
#include "fails.h"
#include "test.h"

namespace metal_marlin::testing {
namespace {

constexpr int32_t kU16 = 2, kU32 = 4, kI32 = 5, kString = 8;
constexpr int32_t kF32 = 0, kQ40 = 2, kQ80 = 8;

/// A part with the number `no` (from 0) and no tensor yet.
GgufWriter part(uint16_t no, uint16_t count, int32_t tensors, uint32_t alignment = 32) {
  GgufWriter w;
  w.alignment = alignment;
  if (alignment != 32) w.key("general.alignment", kU32, bytes_of<uint32_t>({alignment}));
  w.key("split.no", kU16, bytes_of<uint16_t>({no}));
  w.key("split.tensors.count", kI32, bytes_of<int32_t>({tensors}));
  w.key("split.count", kU16, bytes_of<uint16_t>({count}));
  return w;
}
std::string part_of(uint16_t no, uint16_t count, int32_t tensors, const std::string& tensor) {
  GgufWriter w = part(no, count, tensors);
  w.tensor(tensor, {2}, kF32, "12345678");
  return w.file();
}
std::string first_of(uint16_t count, int32_t tensors) {
  GgufWriter w = part(0, count, tensors);
  w.key("general.architecture", kString, GgufWriter::text("llama"));
  return w.file().substr(0, w.file().size() - 5);  // without a tensor, no data follow and no padding
}

using Files = std::vector<std::pair<std::string, std::string>>;

Result<std::unique_ptr<Checkpoint>> open_files(const Files& files, const std::string& name = "m-00001-of-00003.gguf") {
  auto folder = std::make_unique<MemoryFolder>();
  for (const auto& [file, content] : files) folder->add(file, content);
  return open_checkpoint(std::move(folder), name, MARLIN_LAYOUT_AUTO);
}

/// Three good parts, of which a test spoils some.
Files three() {
  return {{"m-00001-of-00003.gguf", first_of(3, 2)},
          {"m-00002-of-00003.gguf", part_of(1, 3, 2, "a")},
          {"m-00003-of-00003.gguf", part_of(2, 3, 2, "b")}};
}

void expect_refused(const Files& files, marlin_status code, std::initializer_list<const char*> texts,
                    const std::string& name = "m-00001-of-00003.gguf") {
  const Status status = open_files(files, name).status();
  EXPECT_EQ(status.code(), code) << status.message();
  for (const char* text : texts) EXPECT_THAT(status.message(), HasSubstr(text));
}

TEST(SplitGguf, TensorsOfAllPartsAreOneCheckpoint) {
  const std::string q4(18 * 3, '4'), q8(34 * 2, '8');
  GgufWriter first = part(0, 3, 4);
  first.tensor("norm", {3}, kF32, "abcdefghijkl");
  GgufWriter second = part(1, 3, 4, 64);  // an alignment of its own
  second.tensor("x", {1}, kF32, "1234");
  second.tensor("blk.0.up.weight", {32, 3}, kQ40, q4);
  GgufWriter third = part(2, 3, 4, 8);
  third.tensor("blk.1.up.weight", {32, 2}, kQ80, q8);
  const auto checkpoint = must(open_files({{"m-00001-of-00003.gguf", first.file()},
                                           {"m-00002-of-00003.gguf", second.file()},
                                           {"m-00003-of-00003.gguf", third.file()}}));
  const auto bytes = [&](const char* name) {
    const auto view = checkpoint->tensor(name);
    return view.ok() ? std::string(reinterpret_cast<const char*>(view.value().data), view.value().bytes) : "none";
  };
  EXPECT_EQ(bytes("norm"), "abcdefghijkl");
  EXPECT_EQ(bytes("x"), "1234");
  EXPECT_EQ(bytes("blk.0.up.weight"), q4);
  EXPECT_EQ(bytes("blk.1.up.weight"), q8);
  ASSERT_EQ(checkpoint->layers().size(), 2u);
  EXPECT_EQ(checkpoint->layers()[0].name, "blk.0.up.weight");
  EXPECT_EQ(checkpoint->layers()[0].format, MARLIN_FORMAT_INT4);
  EXPECT_EQ(checkpoint->layers()[1].format, MARLIN_FORMAT_INT8);
  EXPECT_EQ(checkpoint->tensors().file_count(), 3u);
  EXPECT_EQ(checkpoint->tensors().name(0), "norm") << "in the order of the parts";
  EXPECT_EQ(checkpoint->tensors().name(3), "blk.1.up.weight");
}

TEST(SplitGguf, TheFirstPartMayBeEmpty) {
  const auto opened = must(open_files(three()));
  EXPECT_EQ(opened->tensors().size(), 2u);
  EXPECT_TRUE(opened->tensor("a").ok());
  EXPECT_TRUE(opened->tensor("b").ok());
}

TEST(SplitGguf, APartThatIsMissing) {
  Files files = three();
  files.erase(files.begin() + 1);
  expect_refused(files, MARLIN_E_FILE, {"m-00002-of-00003.gguf: part 2 of 3 of a split model", "no such file"});
  EXPECT_EQ(open_files(files).status().native_code(), ENOENT);
  files = three();
  files.pop_back();
  expect_refused(files, MARLIN_E_FILE, {"m-00003-of-00003.gguf: part 3 of 3 of a split model"});
  const std::string stem(200, 's');  // the end of a long name tells the parts apart
  expect_refused({{stem + "-00001-of-00002.gguf", first_of(2, 1)}}, MARLIN_E_FILE, {"s-00002-of-00002.gguf: part 2 of 2"},
                 stem + "-00001-of-00002.gguf");
}

TEST(SplitGguf, APartThatIsDoubledOrOutOfOrder) {
  Files files = three();
  files[2].second = files[1].second;
  expect_refused(files, MARLIN_E_FORMAT, {"m-00003-of-00003.gguf: ", "'split.no': expected 2", "found 1"});
  files = three();
  std::swap(files[1].second, files[2].second);
  expect_refused(files, MARLIN_E_FORMAT, {"m-00002-of-00003.gguf: ", "'split.no': expected 1", "found 2"});
  files = three();
  std::swap(files[0].second, files[1].second);
  expect_refused(files, MARLIN_E_FORMAT, {"m-00001-of-00003.gguf: ", "'split.no': expected 0", "found 1"});
}

TEST(SplitGguf, APartOfAnotherModel) {
  Files files = three();
  files[1].second = part_of(1, 4, 2, "a");
  expect_refused(files, MARLIN_E_FORMAT, {"m-00002-of-00003.gguf: ", "'split.count': expected 3", "found 4"});
  files = three();
  files[0].second = first_of(4, 2);
  expect_refused(files, MARLIN_E_FORMAT, {"m-00001-of-00003.gguf: ", "'split.count': expected 3 by the file's name, found 4"});
  files = three();
  files[2].second = part_of(2, 3, 2, "a");
  expect_refused(files, MARLIN_E_FORMAT, {"m-00003-of-00003.gguf: ", "tensor 'a' occurs twice"});
  files = three();
  GgufWriter whole;
  whole.tensor("b", {2}, kF32, "12345678");
  files[2].second = whole.file();
  expect_refused(files, MARLIN_E_FORMAT, {"m-00003-of-00003.gguf: ", "'split.count': expected 3", "found none"});
  files = three();
  files[1].second = "no GGUF, but a text that is long enough";
  expect_refused(files, MARLIN_E_FORMAT, {"m-00002-of-00003.gguf: ", "magic"});
}

TEST(SplitGguf, TensorsThatDoNotAddUp) {
  for (const int32_t count : {0, 1, 3, INT32_MAX}) {
    const std::string found = "found " + std::to_string(count);
    expect_refused({{"m-00001-of-00003.gguf", first_of(3, count)},
                    {"m-00002-of-00003.gguf", part_of(1, 3, count, "a")},
                    {"m-00003-of-00003.gguf", part_of(2, 3, count, "b")}},
                   MARLIN_E_FORMAT,
                   {"m-00001-of-00003.gguf: ", "'split.tensors.count': expected the 2 tensors of all 3 parts", found.c_str()});
  }
  Files files = three();
  files[2].second = part_of(2, 3, 7, "b");
  expect_refused(files, MARLIN_E_FORMAT, {"m-00003-of-00003.gguf: ", "'split.tensors.count': expected 2", "found 7"});
  files = three();
  GgufWriter silent;
  silent.key("split.no", kU16, bytes_of<uint16_t>({0}));
  silent.key("split.count", kU16, bytes_of<uint16_t>({3}));
  files[0].second = silent.file();
  expect_refused(files, MARLIN_E_FORMAT, {"m-00001-of-00003.gguf: ", "'split.tensors.count': expected ", "found none"});
}

TEST(SplitGguf, LaterPartsAndOtherNames) {
  expect_refused(three(), MARLIN_E_UNSUPPORTED,
                 {"m-00003-of-00003.gguf: ", "part 3 of 3", "open its first part, 'm-00001-of-00003.gguf'"},
                 "m-00003-of-00003.gguf");
  for (const char* name : {"m.gguf", "m-1-of-3.gguf", "m-0001-of-0003.gguf", "m-00001-of-00003", "m-000001-of-000003.gguf",
                           "m-00004-of-00003.gguf", "m-00000-of-00003.gguf", "m-00001-of-.gguf", "m-00001-00003.gguf"}) {
    expect_refused({{name, first_of(3, 2)}}, MARLIN_E_UNSUPPORTED,
                   {name, "part 1 of 3", "expected a name with the ending '-00001-of-00003.gguf'"}, name);
  }
  GgufWriter whole;  // a name alone makes no part
  whole.tensor("t", {2}, kF32, "12345678");
  EXPECT_TRUE(open_files({{"m-00002-of-00003.gguf", whole.file()}}, "m-00002-of-00003.gguf").ok());
}

TEST(SplitGguf, NamesOfParts) {
  const auto name = parse_gguf_part_name("a-00001-of-00002-00010-of-00012.gguf");
  ASSERT_TRUE(name);
  EXPECT_EQ(name->stem, "a-00001-of-00002");
  EXPECT_EQ(name->number, 10u);
  EXPECT_EQ(name->count, 12u);
  EXPECT_EQ(gguf_part_name("a", 10, 123456), "a-00010-of-123456.gguf");
  ASSERT_TRUE(parse_gguf_part_name("a-00010-of-123456.gguf"));
  EXPECT_EQ(parse_gguf_part_name("a-00010-of-123456.gguf")->count, 123456u);
  EXPECT_FALSE(parse_gguf_part_name("a-00001-of-99999999999999999999999.gguf")) << "no number of 64 bits";
}

/// The parts that another tool wrote; the first has no tensor.
TEST(SplitGguf, OfAnotherTool) {
  const std::string folder = data_path("gguf-split");
  const auto vectors = must(Checkpoint::open(folder + "/vectors.safetensors", MARLIN_LAYOUT_AUTO));
  for (const std::string& path : {folder, folder + "/model-00001-of-00003.gguf"}) {
    const auto opened = must(Checkpoint::open(path, MARLIN_LAYOUT_AUTO));
    EXPECT_EQ(opened->tensors().size(), 6u);
    EXPECT_EQ(opened->layers().size(), 3u);
    for (const char* name : {"blk.0.ffn_norm.weight", "blk.1.ffn_norm.weight", "blk.2.ffn_norm.weight"}) {
      const auto found = opened->tensor(name), expected = vectors->tensor(name);
      ASSERT_TRUE(found.ok() && expected.ok()) << name;
      ASSERT_EQ(found.value().bytes, expected.value().bytes);
      EXPECT_EQ(std::memcmp(found.value().data, expected.value().data, found.value().bytes), 0) << name;
    }
  }
  const auto later = Checkpoint::open(folder + "/model-00002-of-00003.gguf", MARLIN_LAYOUT_AUTO);
  EXPECT_THAT(later.status().message(), HasSubstr("open its first part, 'model-00001-of-00003.gguf'"));
}

TEST(SplitGguf, WhichFileOfAFolder) {
  const ScratchFolder scratch;
  const auto add = [&](const Files& files) {
    for (const auto& [name, content] : files) write_file(scratch.at(name), content);
  };
  const auto open = [&] { return Checkpoint::open(scratch.at(""), MARLIN_LAYOUT_AUTO); };
  add(three());
  const auto opened = must(open());
  EXPECT_EQ(opened->tensors().size(), 2u);

  std::filesystem::remove(scratch.at("m-00001-of-00003.gguf"));
  EXPECT_THAT(open().status(), Fails(MARLIN_E_FILE, HasSubstr("m-00001-of-00003.gguf")));

  add(three());
  GgufWriter other;
  other.tensor("t", {1}, kF32, "1234");
  add({{"other.gguf", other.file()}});
  EXPECT_THAT(open().status().message(), HasSubstr("found 2: name one"));
  add({{"model-00001-of-00002.gguf", first_of(2, 1)}, {"model-00002-of-00002.gguf", part_of(1, 2, 1, "c")}});
  ASSERT_TRUE(open().ok()) << open().status().message();
  EXPECT_TRUE(open().value()->tensor("c").ok()) << "the parts of model.gguf come first";
  add({{"model.gguf", other.file()}});
  EXPECT_TRUE(open().value()->tensor("t").ok()) << "and model.gguf before them";
}

TEST(SplitGguf, QuantizedToOneFile) {
  const ScratchFolder scratch;
  GgufWriter first = part(0, 2, 2);
  first.key("general.architecture", kString, GgufWriter::text("llama"));
  GgufWriter second = part(1, 2, 2);
  second.tensor("a.weight", {64, 3}, kF32, random_floats(3, 64, "F32", 1));
  second.tensor("norm", {1}, kF32, "1234");
  write_file(scratch.at("m-00001-of-00002.gguf"), first.file());
  write_file(scratch.at("m-00002-of-00002.gguf"), second.file());
  const auto input = must(Checkpoint::open(scratch.at("m-00001-of-00002.gguf"), MARLIN_LAYOUT_AUTO));
  for (const char* name : {"out.gguf", "out.safetensors"}) {
    ConvertOptions options;
    options.format = MARLIN_FORMAT_MXFP4;
    options.layers = {find_layer(*input, "a.weight")};
    must(convert_checkpoint(*input, scratch.at(name), options));
    const auto output = must(Checkpoint::open(scratch.at(name), MARLIN_LAYOUT_AUTO));
    EXPECT_EQ(output->layers()[0].format, MARLIN_FORMAT_MXFP4);
    EXPECT_TRUE(output->tensor("norm").ok());
  }
  const std::string written = read_file(scratch.at("out.gguf"));
  EXPECT_THAT(written, AllOf(HasSubstr("general.architecture"), HasSubstr("llama"), Not(HasSubstr("split."))));
}

}  // namespace
}  // namespace metal_marlin::testing
