// Converting that is stopped or cannot be done: a typed error, and the disk as it was. And tiny files, byte for byte.
#include <sys/resource.h>
#include <sys/stat.h>

#include <cerrno>
#include <climits>

#include "convert_files.h"
#include "fails.h"
#include "test.h"

namespace metal_marlin {
namespace {

using testing::ScratchFolder;

class Convert : public ::testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directory(scratch_.at("in")); }

  void write_input(const std::vector<testing::TestTensor>& tensors) {
    testing::write_file(scratch_.at("in/model.safetensors"), testing::safetensors(tensors));
    input_ = Checkpoint::open(scratch_.at("in"), MARLIN_LAYOUT_AUTO).take();
  }
  void write_layers(int64_t n, int64_t k) {
    const std::string shape = std::to_string(n) + "," + std::to_string(k);
    write_input({{"a.weight", "F32", shape, testing::random_floats(n, k, "F32", 1)},
                 {"b.weight", "F32", shape, testing::random_floats(n, k, "F32", 2)},
                 {"norm.weight", "F32", "4", testing::bytes_of<float>({1, 2, 3, 4})}});
  }
  ConvertOptions options(marlin_scheme scheme, marlin_format format, const std::set<std::string>& layers = {"a", "b"}) {
    ConvertOptions options;
    options.scheme = scheme;
    options.format = format;
    options.layers = testing::layers_called(*input_, layers);
    options.host = heard_.host();
    return options;
  }

  ScratchFolder scratch_;
  std::unique_ptr<Checkpoint> input_;
  testing::Heard heard_;
};

TEST_F(Convert, CancelledAtAnyCallItLeavesTheDiskAsItWas) {
  write_layers(128, 4096);
  std::filesystem::create_directory(scratch_.at("out"));
  testing::write_file(scratch_.at("out/model.gguf"), "precious");
  int64_t calls = 0;
  for (bool through = false; !through; ++calls) {
    ASSERT_LT(calls, 100);
    for (const char* out : {"out/model.gguf", "new"}) {
      heard_ = {};
      heard_.cancel_at = calls;
      ConvertOptions how = options(MARLIN_SCHEME_GGUF, MARLIN_FORMAT_MXFP4);
      how.overwrite = true;
      const Status status = convert_checkpoint(*input_, scratch_.at(out), how);
      through = status.ok();
      if (through) break;
      EXPECT_EQ(status.code(), MARLIN_E_CANCELLED) << status.message();
      EXPECT_EQ(testing::read_file(scratch_.at("out/model.gguf")), "precious");
      EXPECT_EQ(scratch_.names(), (std::set<std::string>{"in", "out"}));
      EXPECT_EQ(scratch_.names("out"), std::set<std::string>{"model.gguf"});
    }
  }
  EXPECT_GT(calls, 6) << "two layers planned, two of several stripes written, a vector copied";
  EXPECT_NE(testing::read_file(scratch_.at("out/model.gguf")), "precious");
}

TEST_F(Convert, ThreadsDoNotChangeAByte) {
  write_layers(512, 1056);
  ConvertOptions how = options(MARLIN_SCHEME_GPTQ, MARLIN_FORMAT_INT4);
  ASSERT_TRUE(convert_checkpoint(*input_, scratch_.at("one"), how).ok());
  const auto outcomes = heard_.outcomes;
  heard_ = {};
  how.host = heard_.host();
  how.host.parallel_for = [](void*, uint32_t tasks, void (*task)(void*, uint32_t), void* user) {
    for (uint32_t i = tasks; i-- > 0;) task(user, i);  // another order
  };
  ASSERT_TRUE(convert_checkpoint(*input_, scratch_.at("two"), how).ok());
  EXPECT_EQ(testing::read_file(scratch_.at("one/model.safetensors")), testing::read_file(scratch_.at("two/model.safetensors")));
  ASSERT_EQ(heard_.outcomes.size(), outcomes.size());
  for (size_t i = 0; i < outcomes.size(); ++i) EXPECT_EQ(heard_.outcomes[i].squared_error, outcomes[i].squared_error);
}

TEST_F(Convert, LayersThatDoNotFitStayWhenAsked) {
  write_input({{"a.weight", "F32", "3,64", testing::random_floats(3, 64, "F32", 1)},
               {"b.weight", "F32", "2,40", testing::random_floats(2, 40, "F32", 2)}});
  ConvertOptions how = options(MARLIN_SCHEME_GGUF, MARLIN_FORMAT_MXFP4);
  EXPECT_THAT(convert_checkpoint(*input_, scratch_.at("out.gguf"), how), Fails(MARLIN_E_SHAPE, HasSubstr("layer 'b'")));
  how.skip_unfit = true;
  ASSERT_TRUE(convert_checkpoint(*input_, scratch_.at("out.gguf"), how).ok());
  const auto output = Checkpoint::open(scratch_.at("out.gguf"), MARLIN_LAYOUT_AUTO).take();
  EXPECT_EQ(testing::tensor_data(*output, "b.weight"), testing::random_floats(2, 40, "F32", 2));
  EXPECT_EQ(output->layers()[0].format, MARLIN_FORMAT_MXFP4);
  EXPECT_EQ(heard_.outcomes[0].status, MARLIN_E_SHAPE);
}

/// Also those that the scheme does not hold whatever their shape. Here these are all.
TEST_F(Convert, LayersOfAnotherFormatStayWhenAsked) {
  write_layers(8, 64);
  ConvertOptions how = options(MARLIN_SCHEME_MLX, MARLIN_FORMAT_INT8);
  EXPECT_THAT(convert_checkpoint(*input_, scratch_.at("out"), how), Fails(MARLIN_E_UNSUPPORTED, HasSubstr("layer 'a'")));
  how.skip_unfit = true;
  EXPECT_STREQ(convert_checkpoint(*input_, scratch_.at("out"), how).message(), "no layer is left to quantize");
}

TEST_F(Convert, AFileThatHasNoRoomIsNotBegun) {
  write_layers(128, 4096);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{4096, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const Status status = convert_checkpoint(*input_, scratch_.at("out.gguf"), options(MARLIN_SCHEME_GGUF, MARLIN_FORMAT_MXFP4));
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_THAT(status, Fails(MARLIN_E_FILE, HasSubstr("cannot take room for the file")));
  EXPECT_EQ(scratch_.names(), std::set<std::string>{"in"});
}

TEST_F(Convert, TheModelOfAnotherInTheFolderIsInTheWay) {
  write_layers(8, 64);
  std::filesystem::create_directory(scratch_.at("out"));
  for (const char* other : {"model.safetensors.index.json", "quantize_config.json"}) {
    testing::write_file(scratch_.at(std::string("out/") + other), "{}");
    ConvertOptions how = options(MARLIN_SCHEME_AUTO, MARLIN_FORMAT_MXFP4);
    how.overwrite = true;
    const Status status = convert_checkpoint(*input_, scratch_.at("out"), how);
    EXPECT_THAT(status, Fails(MARLIN_E_FILE, HasSubstr(other))) << other;
    EXPECT_THAT(status.message(), HasSubstr("another model's file"));
    EXPECT_EQ(scratch_.names("out"), std::set<std::string>{other});
    std::filesystem::remove(scratch_.at(std::string("out/") + other));
  }
}

TEST_F(Convert, AFileThatAppearsMeanwhileStays) {
  write_layers(8, 64);
  std::string name = scratch_.at("out.gguf");
  ConvertOptions how = options(MARLIN_SCHEME_GGUF, MARLIN_FORMAT_MXFP4);
  how.host = {};
  how.host.user = &name;
  how.host.progress = [](void* user, uint64_t, uint64_t total, const char*) -> int32_t {
    if (total != 0) testing::write_file(*static_cast<std::string*>(user), "precious");
    return 0;
  };
  const Status status = convert_checkpoint(*input_, name, how);
  EXPECT_EQ(status.code(), MARLIN_E_FILE);
  EXPECT_EQ(status.native_code(), EEXIST);
  EXPECT_EQ(testing::read_file(name), "precious");
  EXPECT_EQ(scratch_.names(), (std::set<std::string>{"in", "out.gguf"}));
}

TEST_F(Convert, LeavesNoFileOpen) {
  const auto open_files = [] {
    const std::filesystem::directory_iterator all("/proc/self/fd");
    return std::distance(begin(all), end(all));
  };
  if (!std::filesystem::exists("/proc/self/fd")) GTEST_SKIP() << "nothing here counts open files";
  write_layers(8, 64);
  const auto before = open_files();
  for (const bool works : {true, false}) {
    ConvertOptions how = options(MARLIN_SCHEME_GGUF, works ? MARLIN_FORMAT_MXFP4 : MARLIN_FORMAT_NF4);
    EXPECT_EQ(convert_checkpoint(*input_, scratch_.at("out.gguf"), how).ok(), works);
    EXPECT_TRUE(Checkpoint::open(scratch_.at("in"), MARLIN_LAYOUT_AUTO).ok());
    EXPECT_FALSE(Checkpoint::open(scratch_.at("nowhere"), MARLIN_LAYOUT_AUTO).ok());
  }
  EXPECT_EQ(open_files(), before);
}

TEST_F(Convert, ANaNIsAnErrorWithItsPlace) {
  std::string floats = testing::random_floats(2, 32, "F32", 1);
  floats.replace(4 * 33, 4, testing::bytes_of<uint32_t>({0x7fc00000u}));
  write_input({{"a.weight", "F32", "2,32", floats}});
  EXPECT_THAT(convert_checkpoint(*input_, scratch_.at("out"), options(MARLIN_SCHEME_AUTO, MARLIN_FORMAT_MXFP4)),
              Fails(MARLIN_E_FORMAT, HasSubstr("[1, 1]")));
  EXPECT_EQ(scratch_.names(), std::set<std::string>{"in"});
}

TEST_F(Convert, AnObstacleBehindTheFirstNameLeavesTheOldFiles) {
  write_layers(8, 64);
  std::filesystem::create_directory(scratch_.at("out"));
  testing::write_file(scratch_.at("out/model.safetensors"), "old weights");
  ConvertOptions how = options(MARLIN_SCHEME_AUTO, MARLIN_FORMAT_MXFP4);
  how.overwrite = true;
  // It comes while the work is done: a folder where config.json, the second name, is to be.
  std::string obstacle = scratch_.at("out/config.json");
  how.host = {};
  how.host.user = &obstacle;
  how.host.progress = [](void* user, uint64_t, uint64_t total, const char*) -> int32_t {
    if (total != 0) std::filesystem::create_directory(*static_cast<std::string*>(user));  // else it is still planned
    return 0;
  };
  EXPECT_THAT(convert_checkpoint(*input_, scratch_.at("out"), how), Fails(MARLIN_E_FILE, HasSubstr("config.json")));
  EXPECT_EQ(testing::read_file(scratch_.at("out/model.safetensors")), "old weights");
  EXPECT_EQ(scratch_.names("out"), (std::set<std::string>{"model.safetensors", "config.json"}));
}

TEST_F(Convert, TypesOfBlocksSayAll) {
  write_layers(4, 128);
  const auto failure = [&](marlin_scheme scheme, const auto& change) {
    ConvertOptions how = options(scheme, MARLIN_FORMAT_NONE);
    how.types.assign(how.layers.size(), gguf_type("Q5_1"));
    change(how);
    return std::string(convert_checkpoint(*input_, scratch_.at("out"), how).message());
  };
  EXPECT_EQ(failure(MARLIN_SCHEME_GGUF, [](ConvertOptions& how) { how.dry_run = true; }), "");
  EXPECT_THAT(failure(MARLIN_SCHEME_GGUF, [](ConvertOptions& how) { how.group_size = 64; }),
              HasSubstr("group_size: GGUF's Q5_1 has groups of 32, found 64"));
  EXPECT_THAT(failure(MARLIN_SCHEME_GGUF, [](ConvertOptions& how) { how.asymmetric = true; }),
              HasSubstr("ASYMMETRIC is given beside the type Q5_1"));
  EXPECT_THAT(failure(MARLIN_SCHEME_MLX, [](ConvertOptions&) {}), HasSubstr("Q5_1 is a type of GGUF, and MLX has none"));
  EXPECT_THAT(failure(MARLIN_SCHEME_GGUF, [](ConvertOptions& how) { how.types[0] = nullptr; }),
              HasSubstr("format: expected one to quantize floats to, found 0"));
}

TEST_F(Convert, WhatMlxDoesNotHold) {
  write_layers(4, 128);
  const auto failure = [&](marlin_format format, int64_t group, Sparsity sparsity = Sparsity::as_given) {
    ConvertOptions how = options(MARLIN_SCHEME_MLX, format);
    how.group_size = group;
    how.sparsity = sparsity;
    return std::string(convert_checkpoint(*input_, scratch_.at("out"), how).message());
  };
  EXPECT_THAT(failure(MARLIN_FORMAT_INT4, 16), HasSubstr("MLX has groups of 32, 64 and 128, found 16"));
  EXPECT_THAT(failure(MARLIN_FORMAT_MXFP4, 0), HasSubstr("MXFP4"));
  EXPECT_THAT(failure(MARLIN_FORMAT_INT8, 0), HasSubstr("found INT8"));
  EXPECT_THAT(failure(MARLIN_FORMAT_INT4, 32, Sparsity::prune), HasSubstr("expected dense codes"));
  EXPECT_TRUE(scratch_.names().contains("in") && scratch_.names().size() == 1) << "a failure left a file";
}

TEST_F(Convert, WhatTheHostHearsIsPrintable) {
  // Q4_0, of which one is decoded and quantized again, and one that no layout can hold with whole groups.
  testing::GgufWriter file;
  file.tensor("a\x1b[2J\n\xff\u202e.weight", {32, 1}, 2, std::string(18, '\0'));
  file.tensor("b\x1b[2J\n.weight", {40, 1}, 0, std::string(160, '\0'));
  testing::write_file(scratch_.at("in/model.gguf"), file.file());
  input_ = Checkpoint::open(scratch_.at("in"), MARLIN_LAYOUT_AUTO).take();
  ConvertOptions how = options(MARLIN_SCHEME_GGUF, MARLIN_FORMAT_MXFP4, {});
  how.layers = {0, 1};
  how.skip_unfit = true;
  must(convert_checkpoint(*input_, scratch_.at("out.gguf"), how));
  ASSERT_EQ(heard_.log.size(), 1u);
  EXPECT_THAT(heard_.log[0], HasSubstr("a\\x1b[2J\\x0a\\xff\\u202e"));
  EXPECT_THAT(heard_.names, ::testing::Contains(HasSubstr("\x1b"))) << "names are as in the file";
}

TEST_F(Convert, NoFileThatWasReadIsReplaced) {
  // The index and config.json as well as the shards, and each under any name.
  const std::string one = testing::random_floats(8, 64, "F32", 1);
  testing::write_file(scratch_.at("in/part.safetensors"), testing::safetensors({{"a.weight", "F32", "8,64", one}}));
  testing::write_file(scratch_.at("in/model.safetensors.index.json"), R"({"weight_map":{"a.weight":"part.safetensors"}})");
  testing::write_file(scratch_.at("in/config.json"), R"({"model_type":"test"})");
  input_ = Checkpoint::open(scratch_.at("in"), MARLIN_LAYOUT_AUTO).take();
  std::filesystem::create_directory(scratch_.at("out"));
  for (const char* read : {"part.safetensors", "model.safetensors.index.json", "config.json"}) {
    for (const bool symbolic : {false, true}) {
      for (const char* written : {"model.safetensors", "config.json", "quantize_config.json"}) {
        SCOPED_TRACE(::testing::Message() << written << " is a " << (symbolic ? "symbolic" : "hard") << " link to " << read);
        const std::string from = scratch_.at(std::string("in/") + read), to = scratch_.at(std::string("out/") + written);
        const std::string before = testing::read_file(from);
        symbolic ? std::filesystem::create_symlink(from, to) : std::filesystem::create_hard_link(from, to);
        ConvertOptions how = options(MARLIN_SCHEME_GPTQ, MARLIN_FORMAT_INT4, {"a"});
        how.overwrite = true;
        EXPECT_THAT(convert_checkpoint(*input_, scratch_.at("out"), how),
                    Fails(MARLIN_E_ARGUMENT, HasSubstr("part of the input")));
        EXPECT_EQ(testing::read_file(from), before);
        EXPECT_EQ(scratch_.names("out"), std::set<std::string>{written});
        std::filesystem::remove(to);
      }
    }
  }
}

TEST_F(Convert, OnlyRegularFilesAreReplaced) {
  write_layers(8, 64);
  std::filesystem::create_directory(scratch_.at("out"));
  const std::string target = scratch_.at("elsewhere"), weights = scratch_.at("out/model.safetensors");
  testing::write_file(target, "precious");
  const std::pair<const char*, std::function<void()>> obstacles[] = {
      {"a symbolic link", [&] { std::filesystem::create_symlink(target, weights); }},
      {"a symbolic link", [&] { std::filesystem::create_symlink(scratch_.at("nothing"), weights); }},
      {"a pipe", [&] { ASSERT_EQ(mkfifo(weights.c_str(), 0600), 0); }},
      {"directory", [&] { std::filesystem::create_directory(weights); }},
  };
  for (const auto& [what, make] : obstacles) {
    make();
    for (const bool overwrite : {true, false}) {
      ConvertOptions how = options(MARLIN_SCHEME_AUTO, MARLIN_FORMAT_MXFP4);
      how.overwrite = overwrite;
      EXPECT_THAT(convert_checkpoint(*input_, scratch_.at("out"), how), Fails(MARLIN_E_FILE, HasSubstr(what)));
    }
    EXPECT_FALSE(std::filesystem::is_regular_file(std::filesystem::symlink_status(weights))) << what;
    EXPECT_EQ(testing::read_file(target), "precious");
    EXPECT_EQ(scratch_.names("out"), std::set<std::string>{"model.safetensors"});
    std::filesystem::remove(weights);
  }
}

/// The system's own calls, but the `fail_at`th fails, and some fail always.
class FailingNames final : public NameChanges {
 public:
  explicit FailingNames(const char* absent) : absent_(absent) {}
  int fail_at = INT_MAX, calls = 0;

  int open_nameless(const char* folder) noexcept override {
    return is_absent("nameless") ? -1 : NameChanges::open_nameless(folder);
  }
  int link(const char* from, const char* to) noexcept override {
    const bool from_nameless = std::string_view(from).starts_with("/proc/");
    if (is_absent("links") && !from_nameless) return EPERM;
    return calls++ == fail_at ? EIO : NameChanges::link(from, to);
  }
  int rename(const char* from, const char* to) noexcept override {
    return calls++ == fail_at ? EIO : NameChanges::rename(from, to);
  }
  int exchange(const char* a, const char* b) noexcept override {
    if (is_absent("exchange")) return EINVAL;
    return calls++ == fail_at ? EIO : NameChanges::exchange(a, b);
  }

 private:
  bool is_absent(const char* what) const { return absent_.find(what) != std::string_view::npos; }
  const std::string_view absent_;
};

using Contents = std::map<std::string, std::string>;

TEST_F(Convert, WhateverChangeOfANameFailsAllNamesStayAsTheyWere) {
  write_layers(8, 64);
  const Contents states[] = {
      {},  // a new folder
      {{"tokenizer.json", "kept"}},
      {{"config.json", "old config"}, {"tokenizer.json", "kept"}},
      {{"model.safetensors", "old weights"}, {"config.json", "old config"}, {"quantize_config.json", "old"}},
  };
  const auto read = [&](const std::string& folder) {
    Contents found;
    for (const std::string& name : scratch_.names(folder)) found[name] = testing::read_file(scratch_.at(folder + "/" + name));
    return found;
  };
  int folders = 0;
  for (const char* absent : {"", "exchange", "exchange links", "nameless", "nameless exchange", "nameless exchange links"}) {
    for (const Contents& before : states) {
      for (int fail_at = 0, done = 0; done == 0; ++fail_at) {
        SCOPED_TRACE(::testing::Message() << "without '" << absent << "', call " << fail_at << ", " << before.size()
                                          << " files");
        ASSERT_LT(fail_at, 20);
        const std::string folder = "out" + std::to_string(folders++);
        if (!before.empty()) std::filesystem::create_directory(scratch_.at(folder));
        for (const auto& [name, content] : before) testing::write_file(scratch_.at(folder + "/" + name), content);
        FailingNames names(absent);
        names.fail_at = fail_at;
        ConvertOptions how = options(MARLIN_SCHEME_GPTQ, MARLIN_FORMAT_INT4);
        how.overwrite = true;
        how.names = &names;
        const Status status = convert_checkpoint(*input_, scratch_.at(folder), how);
        done = status.ok();
        ASSERT_EQ(status.ok(), names.calls <= fail_at) << status.message();
        if (!status.ok()) {
          EXPECT_EQ(status.code(), MARLIN_E_FILE);
          EXPECT_EQ(std::filesystem::exists(scratch_.at(folder)), !before.empty());
          EXPECT_TRUE(before.empty() || read(folder) == before);
          continue;
        }
        EXPECT_GE(fail_at, 3) << "three files got names";
        Contents after = read(folder);
        EXPECT_EQ(after.size(), before.contains("tokenizer.json") ? 4u : 3u);
        for (const char* name : {"model.safetensors", "config.json", "quantize_config.json"}) {
          EXPECT_TRUE(after.contains(name)) << name;
          EXPECT_THAT(after[name], ::testing::Not(HasSubstr("old"))) << name;
        }
      }
    }
  }
}

TEST_F(Convert, GgufByteForByte) {
  // Weights 0, 1, .., 7 and their negatives, twice over; the largest is 7, so that Q4_0's scale is 1.
  std::string floats;
  for (int i = 0; i < 32; ++i) testing::append(floats, static_cast<float>(i % 16 < 8 ? i % 8 : -(i % 8)));
  write_input({{"a.weight", "F32", "1,32", floats}});
  ASSERT_TRUE(convert_checkpoint(*input_, scratch_.at("out.gguf"), options(MARLIN_SCHEME_GGUF, MARLIN_FORMAT_INT4)).ok());
  testing::GgufWriter want;
  want.key("general.architecture", 8, testing::GgufWriter::text("unknown"));
  want.key("general.quantization_version", 4, testing::bytes_of<uint32_t>({2}));
  want.key("general.file_type", 4, testing::bytes_of<uint32_t>({2}));
  std::string block = testing::bytes_of<uint16_t>({0x3c00});  // 1.0
  for (int j = 0; j < 16; ++j) {
    const int code = j < 8 ? 8 + j : 8 - j % 8;
    block += static_cast<char>(code | code << 4);
  }
  want.tensor("a.weight", {32, 1}, 2, block);
  EXPECT_EQ(testing::read_file(scratch_.at("out.gguf")), want.file());
}

TEST_F(Convert, SafetensorsByteForByte) {
  std::string floats;
  for (int i = 0; i < 32; ++i) testing::append(floats, i == 0 ? 6.0f : i == 1 ? -0.5f : 0.0f);
  write_input({{"a.weight", "F32", "1,32", floats}});
  ASSERT_TRUE(convert_checkpoint(*input_, scratch_.at("out"), options(MARLIN_SCHEME_AUTO, MARLIN_FORMAT_MXFP4)).ok());
  std::string header =
      R"({"__metadata__":{"format":"pt"},"a.weight_packed":{"dtype":"U8","shape":[1,16],"data_offsets":[0,16]},)"
      R"("a.weight_scale":{"dtype":"U8","shape":[1,1],"data_offsets":[16,17]}})";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  std::string codes(16, '\0');
  codes[0] = '\x97';  // 6 (code 7), then -0.5 (code 9); the scale is 2^0
  EXPECT_EQ(testing::read_file(scratch_.at("out/model.safetensors")), testing::safetensors(header, codes + '\x7f'));
}

}  // namespace
}  // namespace metal_marlin
