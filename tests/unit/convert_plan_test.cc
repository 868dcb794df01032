// What a conversion writes around its layers: several files, names, configs, and what it refuses before any work.
#include <unistd.h>

#include <cerrno>

#include "checkpoints/convert/output_file.h"
#include "checkpoints/convert/write_safetensors.h"
#include "checkpoints/value_table.h"
#include "convert_files.h"
#include "failing_calls.h"
#include "fails.h"
#include "test.h"

namespace metal_marlin {
namespace {

using testing::ScratchFolder;
using testing::TestTensor;

class ConvertPlan : public ::testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directory(scratch_.at("in")); }

  static TestTensor floats(const std::string& name, uint32_t seed = 1, int64_t n = 64, int64_t k = 128) {
    return {name, "F32", std::to_string(n) + "," + std::to_string(k), testing::random_floats(n, k, "F32", seed)};
  }
  void write(const std::string& name, const std::string& content) { testing::write_file(scratch_.at("in/" + name), content); }
  void write(const std::vector<TestTensor>& tensors) { write("model.safetensors", testing::safetensors(tensors)); }
  /// Converts `layers` of in/`input` to `out`, MXFP4 in compressed-tensors unless `change` says otherwise.
  Status convert(
      const std::string& out, const std::set<std::string>& layers,
      const std::function<void(ConvertOptions&)>& change = [](ConvertOptions&) {}, const std::string& input = "in") {
    const auto opened = Checkpoint::open(input == "in" ? scratch_.at("in") : input, MARLIN_LAYOUT_AUTO);
    if (!opened.ok()) return opened.status();
    ConvertOptions how;
    how.scheme = MARLIN_SCHEME_COMPRESSED_TENSORS;
    how.format = MARLIN_FORMAT_MXFP4;
    for (size_t i = 0; i < opened.value()->layers().size(); ++i)
      if (layers.empty() || layers.contains(opened.value()->layers()[i].name)) how.layers.push_back(i);
    change(how);
    return convert_checkpoint(*opened.value(), out.starts_with('/') || !in_scratch_ ? out : scratch_.at(out), how);
  }
  std::string config(const std::string& folder) { return testing::read_file(scratch_.at(folder + "/config.json")); }

  ScratchFolder scratch_;
  bool in_scratch_ = true;  // outputs are in the scratch folder
};

TEST_F(ConvertPlan, ShardsStayShardsOrAreFilledUpToASize) {
  write("one.safetensors", testing::safetensors({floats("a.weight", 1), floats("b.weight", 2)}));
  write("two.safetensors", testing::safetensors({floats("c.weight", 3)}));
  write("model.safetensors.index.json",
        R"({"weight_map":{"a.weight":"one.safetensors","b.weight":"one.safetensors","c.weight":"two.safetensors"}})");
  ASSERT_TRUE(convert("kept", {}).ok());
  const std::string last = "model-00002-of-00002.safetensors";
  EXPECT_EQ(scratch_.names("kept"),
            (std::set<std::string>{"model-00001-of-00002.safetensors", last, "config.json", "model.safetensors.index.json"}));
  EXPECT_THAT(testing::read_file(scratch_.at("kept/model.safetensors.index.json")),
              AllOf(HasSubstr("\"total_size\""), HasSubstr("\"c.weight_packed\": \"" + last + "\"")));
  ASSERT_TRUE(convert("split", {}, [](ConvertOptions& how) { how.shard_bytes = 1; }).ok());
  EXPECT_TRUE(scratch_.names("split").contains("model-00003-of-00003.safetensors"));
  for (const char* folder : {"kept", "split"})
    EXPECT_EQ(Checkpoint::open(scratch_.at(folder), MARLIN_LAYOUT_AUTO).value()->layer_count(), 3u);
  ASSERT_TRUE(convert("one.safetensors", {}).ok()) << "one name, one file";
}

TEST_F(ConvertPlan, ConfigsNameTheLayersThatStay) {
  write({floats("model.a.weight", 1), floats("model.b.weight", 2)});
  const std::set<std::string> one = {"model.a"};
  ASSERT_TRUE(convert("ct", one).ok());
  EXPECT_THAT(config("ct"), HasSubstr("\"ignore\": [\n      \"model.b\"\n    ]"));
  ASSERT_TRUE(convert("gptq", one, [](auto& how) { how.scheme = MARLIN_SCHEME_GPTQ, how.format = MARLIN_FORMAT_INT4; }).ok());
  EXPECT_THAT(config("gptq"), HasSubstr("\"-:^model\\\\.b$\": {}"));
  const auto sparse = [](ConvertOptions& how) {
    how.scheme = MARLIN_SCHEME_MARLIN_24, how.format = MARLIN_FORMAT_INT4, how.sparsity = Sparsity::prune;
  };
  ASSERT_TRUE(convert("marlin", one, sparse).ok());
  EXPECT_THAT(config("marlin"), HasSubstr("\"ignore\": [\n      \"model.b\"\n    ]"));
}

TEST_F(ConvertPlan, SparseFloatsAreTakenWithTheirZeros) {
  const std::string folder = std::string(MARLIN_TEST_DATA) + "/ct-sparse-24-bitmask";
  ASSERT_TRUE(convert("out", {}, [](auto& how) { how.scheme = MARLIN_SCHEME_GGUF; }, folder).ok());
  const auto before = Checkpoint::open(folder, MARLIN_LAYOUT_AUTO).take(),
             after = Checkpoint::open(scratch_.at("out"), MARLIN_LAYOUT_AUTO).take();
  SourceOptions quantized;
  quantized.quantize_to = MARLIN_FORMAT_MXFP4;
  const auto want = testing::decode_all(*before->source(0, 0, quantized).value()).take();
  const size_t layer = testing::find_layer(*after, before->layer(0).name + ".weight");
  const auto got = testing::decode_all(*after->source(layer, 0, {}).value()).take();
  ASSERT_EQ(want.size(), got.size());
  for (size_t i = 0; i < want.size(); ++i) ASSERT_EQ(want[i] == 0 ? 0 : want[i], got[i] == 0 ? 0 : got[i]) << i;
}

TEST_F(ConvertPlan, WhatIsRefusedBeforeAnyWork) {
  const std::string tiny(64 * 128 * 4, '\0');
  std::string small;
  for (int i = 0; i < 64 * 128; ++i) testing::append(small, 1e-30f);
  struct Case {
    std::vector<TestTensor> tensors;
    std::function<void(ConvertOptions&)> change;
    const char* words;
  };
  const auto gguf = [](ConvertOptions& how) { how.scheme = MARLIN_SCHEME_GGUF; };
  const auto scheme = [](marlin_scheme one, Sparsity sparsity = Sparsity::as_given) {
    return [one, sparsity](ConvertOptions& how) { how.scheme = one, how.format = MARLIN_FORMAT_INT4, how.sparsity = sparsity; };
  };
  const Case cases[] = {
      {{floats("a.weight")}, [](auto& how) { how.scheme = 99; }, "scheme: 99 is none of this version"},
      {{floats("a.weight"), {"a.weight_packed", "U8", "1", "x"}}, [](auto&) {}, "'a.weight_packed': would be written twice"},
      {{floats("a.weight"), {"b", "BOOL", "1", "x"}}, gguf, "tensor 'b': GGUF has no type BOOL"},
      {{floats("a.weight"), {std::string(64, 'n'), "F32", "1", "1234"}}, gguf, "GGUF holds names of up to 63 bytes, found 64"},
      {{floats("a.weight"), {"b", "F32", "1,1,1,1,1", "1234"}}, gguf, "GGUF holds up to 4 dimensions, found 5"},
      {{floats("a.weight"), {"b", "F4", "2", "x"}}, gguf, "GGUF has no type F4"},
      {{{"a.weight", "F32", "64,128", small}}, scheme(MARLIN_SCHEME_GPTQ), "scales: GPTQ holds float16"},
      {{{"a.weight", "F32", "64,128", small}}, scheme(MARLIN_SCHEME_GGUF), "scales"},
      {{{"a.weight", "F32", "64,128", small}}, scheme(MARLIN_SCHEME_MARLIN_24, Sparsity::prune), "scales: marlin-24 holds"},
      {{floats("a.weight", 1, 65)}, scheme(MARLIN_SCHEME_MARLIN_24, Sparsity::prune), "marlin-24 wants multiples of 64 and 32"},
      {{floats("a.weight")}, scheme(MARLIN_SCHEME_MARLIN_24), "compressed-tensors holds dense int4"},
      {{floats("a.weight")},
       [](auto& how) {
         how.scheme = MARLIN_SCHEME_MARLIN_24, how.format = MARLIN_FORMAT_INT4, how.sparsity = Sparsity::prune,
         how.group_size = 64;
       },
       "marlin-24 has groups of 128 or one a row, found 64"},
      {{floats("a.weight", 1, 64, 40)}, [](auto&) {}, "wants whole groups of 32"},
      {{{"experts.w.weight", "F32", "2,64,128", tiny + tiny}},
       scheme(MARLIN_SCHEME_MARLIN_24, Sparsity::prune),
       "marlin-24 has no stacks of experts, found 2"},
      {{{"experts.w.weight", "F32", "2,64,128", tiny + tiny}}, scheme(MARLIN_SCHEME_GPTQ), "experts"},
      {{floats("a.weight")},
       [](auto& how) { how.scheme = MARLIN_SCHEME_GGUF, how.format = MARLIN_FORMAT_INT4, how.asymmetric = true; },
       "GGUF: no block type with integer zero points"},
      {{floats("a.weight")},
       [](auto& how) { how.scheme = MARLIN_SCHEME_GGUF, how.format = MARLIN_FORMAT_INT4, how.group_size = 64; },
       "GGUF's Q4_0 has groups of 32, found 64"},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(one.words);
    write(one.tensors);
    const Status status = convert("out", {"a", "experts.w"}, one.change);
    EXPECT_FALSE(status.ok());
    EXPECT_THAT(status.message(), HasSubstr(one.words));
    EXPECT_EQ(scratch_.names(), std::set<std::string>{"in"});
  }
}

/// Scales that float16 does not hold are float32 in the one scheme that has such scales.
TEST_F(ConvertPlan, ScalesOfTinyWeightsAreFloat32) {
  std::string small;
  for (int i = 0; i < 64 * 128; ++i) testing::append(small, 1e-30f);
  write({{"a.weight", "F32", "64,128", small}});
  ASSERT_TRUE(convert("out", {}, [](auto& how) { how.format = MARLIN_FORMAT_INT4; }).ok());
  const auto opened = Checkpoint::open(scratch_.at("out"), MARLIN_LAYOUT_AUTO).take();
  EXPECT_EQ(opened->tensor("a.weight_scale").value().dtype, MARLIN_F32);
}

TEST_F(ConvertPlan, ConfigThatIsNoObjectIsAnError) {
  write({floats("a.weight")});
  write("config.json", "[1]");
  EXPECT_STREQ(convert("out", {}).message(), "config.json: byte 0: expected an object");
  write("config.json", R"({"yes": true, "no": false, "none": null, "real": 0.5, "less": -2})");
  ASSERT_TRUE(convert("out", {}).ok());
  for (const char* member : {"\"yes\": true", "\"no\": false", "\"none\": null", "\"real\": 0.5", "\"less\": -2"})
    EXPECT_THAT(config("out"), HasSubstr(member));
}

TEST_F(ConvertPlan, CancelledWhilePlannedAndWhileCopied) {
  write({floats("a.weight"), {"norm.weight", "F32", "4", testing::bytes_of<float>({1, 2, 3, 4})}});
  for (int64_t at = 0;; ++at) {
    testing::Heard heard;
    heard.cancel_at = at;
    const Status status = convert("out", {"a"}, [&](auto& how) { how.host = heard.host(); });
    if (status.ok()) {
      EXPECT_GE(at, 3) << "planned, written, copied";
      break;
    }
    EXPECT_THAT(status, Fails(MARLIN_E_CANCELLED, HasSubstr("cancelled by the caller")));
    EXPECT_EQ(heard.calls, at + 1) << "no call behind the one that cancels";
    EXPECT_EQ(scratch_.names(), std::set<std::string>{"in"});
  }
}

TEST_F(ConvertPlan, NamesOfAGgufThatAreNoUtf8HaveNoPlaceInSafetensors) {
  testing::GgufWriter file;
  file.tensor("a\xff.weight", {32, 1}, 0, std::string(128, '\0'));
  testing::write_file(scratch_.at("in/model.gguf"), file.file());
  EXPECT_THAT(convert("out.safetensors", {}), Fails(MARLIN_E_UNSUPPORTED, HasSubstr("safetensors holds names in UTF-8 only")));
}

TEST_F(ConvertPlan, ATensorScaleIsFoundByTheNameOfItsTensor) {
  testing::GgufWriter file;
  file.tensor("a", {64, 64}, 2, std::string(64 * 36, '\x38'));
  testing::write_file(scratch_.at("in/model.gguf"), file.file());
  const Status status =
      convert("out", {}, [](auto& how) { how.scheme = MARLIN_SCHEME_GGUF, how.format = MARLIN_FORMAT_NVFP4; });
  EXPECT_THAT(status,
              Fails(MARLIN_E_UNSUPPORTED, HasSubstr("the tensor scale of an NVFP4 tensor is found by its name in .weight")));
}

TEST(OutputBytes, AreCounted) {
  OutputTensor tensor;
  tensor.name = "a";
  tensor.dims = {INT64_MAX, INT64_MAX};
  const ElementType bytes{"U8", 1, 1, MARLIN_U8};
  const Status status = output_bytes(&bytes, tensor, "safetensors").status();
  EXPECT_EQ(status.code(), MARLIN_E_SHAPE);
  EXPECT_STREQ(status.message(), "tensor 'a': its size is no whole number of bytes below 2^64");
}

TEST_F(ConvertPlan, KeysOfTheOldFileAreNotThoseOfTheNew) {
  testing::GgufWriter file;
  file.key("general.architecture", 8, testing::GgufWriter::text("llama"));
  file.key("general.file_type", 4, testing::bytes_of<uint32_t>({0}));
  for (const char* key : {"split.no", "split.count", "split.tensors.count"})
    file.key(key, 0, testing::bytes_of<uint8_t>({key[6] == 'n' ? uint8_t{0} : uint8_t{1}}));
  file.tensor("a.weight", {32, 1}, 0, std::string(128, '\0'));
  file.tensor("b.weight", {32, 1}, 0, std::string(128, '\0'));
  testing::write_file(scratch_.at("in/model.gguf"), file.file());
  const auto as_gguf = [](ConvertOptions& how) { how.scheme = MARLIN_SCHEME_AUTO; };
  ASSERT_TRUE(convert("out", {}, as_gguf).ok());
  const auto opened = Checkpoint::open(scratch_.at("out"), MARLIN_LAYOUT_AUTO).take();
  EXPECT_FALSE(opened->values().find("split.count"));
  EXPECT_TRUE(opened->values().find("general.architecture"));
  EXPECT_EQ(opened->values().size(), 3u);
}

TEST_F(ConvertPlan, WhereTheOutputMayBe) {
  write({floats("a.weight")});
  EXPECT_THAT(convert("in", {}),
              Fails(MARLIN_E_ARGUMENT, HasSubstr("holds the input, which the new config.json would describe wrongly")));
  ASSERT_TRUE(convert("out/", {}).ok());
  EXPECT_THAT(convert("out", {}).message(), HasSubstr("is there already and may not be replaced"));
  std::filesystem::create_directory(scratch_.at("folder.gguf"));
  const auto gguf = [](ConvertOptions& how) { how.scheme = MARLIN_SCHEME_GGUF; };
  ASSERT_TRUE(convert("folder.gguf", {}, gguf).ok());
  EXPECT_EQ(scratch_.names("folder.gguf"), std::set<std::string>{"model.gguf"});
  in_scratch_ = false;
  for (const std::string& none : {std::string(), std::string("a\0b", 3)})
    EXPECT_THAT(convert(none, {}).message(), HasSubstr("no name of a file or folder"));
  // A name without a folder is in the current one.
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(scratch_.at("out"));
  const Status here = convert("here.gguf", {}, gguf);
  const Status config_here = convert("here.safetensors", {}, [](ConvertOptions& how) { how.overwrite = true; });
  std::filesystem::current_path(before);
  EXPECT_TRUE(here.ok()) << here.message();
  EXPECT_TRUE(config_here.ok()) << config_here.message();
  EXPECT_TRUE(scratch_.names("out").contains("here.gguf"));
  EXPECT_TRUE(scratch_.names("out").contains("here.safetensors"));
}

TEST_F(ConvertPlan, RowsThatAlternateGateAndUpStayAsTheyAre) {
  const std::string folder = std::string(MARLIN_TEST_DATA) + "/mxfp4-gpt-oss-experts";
  const Status status = convert("out.gguf", {}, [](auto& how) { how.scheme = MARLIN_SCHEME_GGUF; }, folder);
  EXPECT_THAT(status, Fails(MARLIN_E_UNSUPPORTED, HasSubstr("no form for rows that alternate gate and up")));
}

TEST_F(ConvertPlan, TensorScalesStayWhereTheSchemeHasSuch) {
  const auto exact = [](marlin_scheme scheme) {
    return [scheme](ConvertOptions& how) { how.scheme = scheme, how.format = MARLIN_FORMAT_NVFP4; };
  };
  testing::Heard heard;
  const auto change = [&](ConvertOptions& how) {
    exact(MARLIN_SCHEME_COMPRESSED_TENSORS)(how);
    how.host = heard.host();
    how.dry_run = true;
  };
  ASSERT_TRUE(convert("out", {}, change, std::string(MARLIN_TEST_DATA) + "/ct-nvfp4").ok());
  ASSERT_FALSE(heard.outcomes.empty());
  EXPECT_NE(heard.outcomes[0].flags & MARLIN_LAYER_EXACT, 0u);
  // Blocks without a tensor of scale beside them are those of the scale 1.
  testing::GgufWriter file;
  file.tensor("a.weight", {64, 64}, 40, std::string(64 * 36, '\x38'));
  testing::write_file(scratch_.at("in/model.gguf"), file.file());
  ASSERT_TRUE(convert("ones", {}, exact(MARLIN_SCHEME_COMPRESSED_TENSORS)).ok());
  const auto opened = Checkpoint::open(scratch_.at("ones"), MARLIN_LAYOUT_AUTO).take();
  EXPECT_EQ(testing::tensor_data(*opened, "a.weight_global_scale"), testing::bytes_of<float>({1}));
}

TEST(OutputFiles, HaveNoRoomForMoreThanADiskHolds) {
  const ScratchFolder scratch;
  NameChanges names;
  const Status status = OutputFile::create(scratch.at("out"), UINT64_MAX, names).status();
  EXPECT_EQ(status.native_code(), EFBIG);
  EXPECT_THAT(status.message(), HasSubstr("cannot take room for the file"));
}

TEST(SafetensorsHeaders, AreNotLongerThanReadersTake) {
  OutputTensor tensor;
  tensor.name = "a";
  tensor.type = "U8";
  tensor.dims = {1};
  tensor.bytes = 1;
  PlannedFile file;
  file.name = "out.safetensors";
  EXPECT_TRUE(plan_safetensors({&tensor, 1}, 0, file).ok());
  const size_t header = file.header.size() - 8;
  EXPECT_TRUE(plan_safetensors({&tensor, 1}, 0, file, header).ok());
  const Status status = plan_safetensors({&tensor, 1}, 0, file, header - 1);
  EXPECT_EQ(status.code(), MARLIN_E_UNSUPPORTED);
  EXPECT_EQ(status.message(), "out.safetensors: 1 tensors need a header of " + std::to_string(header) +
                                  " bytes, expected at most " + std::to_string(header - 1));
}

/// A disk on which names cannot be given, each in another way.
class StubbornNames final : public NameChanges {
 public:
  int link_error = 0, exchange_error = 0, exchanges = INT32_MAX;  // how many succeed

  int link(const char* from, const char* to) noexcept override {
    return link_error != 0 ? link_error : NameChanges::link(from, to);
  }
  int exchange(const char* a, const char* b) noexcept override {
    if (exchanges-- <= 0) return EIO;
    return exchange_error != 0 ? exchange_error : NameChanges::exchange(a, b);
  }
};

/// The second file cannot take its place, and the first cannot give its place back by another exchange.
TEST_F(ConvertPlan, AnExchangeThatCannotBeUndoneIsUndoneByARename) {
  write({floats("a.weight")});
  std::filesystem::create_directory(scratch_.at("out"));
  for (const char* name : {"model.safetensors", "config.json"})
    testing::write_file(scratch_.at(std::string("out/") + name), std::string("old ") + name);
  StubbornNames names;
  names.exchanges = 1;
  const Status status = convert("out", {}, [&](auto& how) { how.overwrite = true, how.names = &names; });
  EXPECT_THAT(status.message(), HasSubstr("config.json: cannot give the file its name"));
  for (const char* name : {"model.safetensors", "config.json"})
    EXPECT_EQ(testing::read_file(scratch_.at(std::string("out/") + name)), std::string("old ") + name);
  EXPECT_EQ(scratch_.names("out"), (std::set<std::string>{"model.safetensors", "config.json"}));
}

TEST_F(ConvertPlan, NamesThatCannotBeGiven) {
  write({floats("a.weight")});
  testing::write_file(scratch_.at("out.gguf"), "precious");
  const auto into = [&](StubbornNames& names) {
    return convert("out.gguf", {},
                   [&](auto& how) { how.scheme = MARLIN_SCHEME_GGUF, how.overwrite = true, how.names = &names; });
  };
  StubbornNames taken;
  taken.link_error = EEXIST;
  EXPECT_THAT(into(taken).message(), HasSubstr("out.gguf: cannot find a free temporary name"));
  StubbornNames broken;
  broken.link_error = EIO;
  EXPECT_THAT(into(broken).message(), HasSubstr("out.gguf: cannot give the file a name"));
  EXPECT_EQ(testing::read_file(scratch_.at("out.gguf")), "precious");
  for (const int number : {ENOTSUP, ENOSYS, EINVAL, EPERM}) {
    StubbornNames no_exchange;
    no_exchange.exchange_error = number;
    EXPECT_TRUE(into(no_exchange).ok()) << number;
  }
  // Without /proc, the file has a temporary name from its beginning.
  testing::FailingCall no_proc("stat", 3, EACCES);
  StubbornNames system;
  const Status status = into(system);
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_GT(no_proc.calls(), 3);
  EXPECT_EQ(scratch_.names(), (std::set<std::string>{"in", "out.gguf"}));
}

}  // namespace
}  // namespace metal_marlin
