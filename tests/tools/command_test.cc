// The command's own manners: help, exit codes, messages, files.
#include <sys/stat.h>

#include "model_files.h"
#include "run_command.h"
#include "safetensors.h"
#include "test.h"
#include "tools/json.h"

#if defined(__linux__)
#include <sys/sysmacros.h>
#endif

namespace metal_marlin::test {
namespace {

namespace fs = std::filesystem;

const char* const kCommands[] = {"doctor", "inspect", "verify", "unpack", "pack", "quantize", "bench", "explain", "quickstart"};

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

TEST(Command, HelpNamesEveryCommandAndEachHasExamples) {
  const Ran all = run_command({"--help"});
  EXPECT_EQ(all.exit_code, 0);
  EXPECT_THAT(all.out, HasSubstr("Exit codes"));
  for (const char* command : kCommands) {
    EXPECT_THAT(all.out, HasSubstr(command));
    const Ran one = run_command({command, "--help"});
    EXPECT_EQ(one.exit_code, 0);
    EXPECT_THAT(one.out, HasSubstr("Example"));
    EXPECT_THAT(one.out, HasSubstr(std::string("metal-marlin ") + command));
    EXPECT_THAT(one.err, IsEmpty());
  }
}

TEST(Command, VersionIsTheLibrarys) {
  const Ran ran = run_command({"--version"});
  EXPECT_EQ(ran.exit_code, 0);
  EXPECT_THAT(ran.out, StartsWith("metal-marlin "));
}

TEST(Command, WrongUsageExitsWith2AndSaysWhy) {
  const std::vector<std::vector<std::string>> wrong = {{},
                                                       {"polish"},
                                                       {"inspect"},
                                                       {"inspect", "x", "--yaml"},
                                                       {"unpack", "x"},
                                                       {"verify", "x", "--format", "int9"},
                                                       {"verify", "x", "--group", "32"},
                                                       {"verify", "x", "-m", "0"},
                                                       {"bench", "-n", "0"},
                                                       {"bench", "--dtype", "u8"},
                                                       {"bench", "--threads", "-1"},
                                                       {"bench", "--layer", "x"},
                                                       {"bench", "--file", "x", "-n", "64"}};
  for (const auto& arguments : wrong) {
    const Ran ran = run_command(arguments);
    EXPECT_EQ(ran.exit_code, 2) << (arguments.empty() ? "nothing" : arguments.back()) << ran.err;
    EXPECT_THAT(ran.err, StartsWith("metal-marlin: "));
    EXPECT_THAT(ran.out, IsEmpty());
  }
}

TEST(Command, EchoesNoControlCharacters) {
  const std::string red = "\x1b[31m\nmetal-marlin: forged";
  for (const std::vector<std::string>& arguments : {std::vector<std::string>{red},
                                                    {"inspect", "--" + red},
                                                    {"inspect", "x", red},
                                                    {"verify", "x", "--format", red},
                                                    {"inspect", red},
                                                    {"bench", "-n", red},
                                                    {"unpack", red, "-o", red},
                                                    {"pack", data("ct-mxfp4"), "-o", red + "/no"}}) {
    const Ran ran = run_command(arguments);
    EXPECT_NE(ran.exit_code, 0);
    EXPECT_EQ((ran.err + ran.out).find('\x1b'), std::string::npos) << ran.err;
    EXPECT_EQ(ran.err.find("\nmetal-marlin: forged"), std::string::npos) << ran.err;
  }
}

TEST(Command, WhatCannotBeReadExitsWith3AndNamesTheFile) {
  const ScratchFolder scratch;
  const std::string good = read_file(data("ct-mxfp4/model.safetensors"));
  write_file(scratch.at("empty.safetensors"), "");
  write_file(scratch.at("cut.safetensors"), good.substr(0, 100));
  write_file(scratch.at("short.safetensors"), good.substr(0, good.size() - 1));
  write_file(scratch.at("no.gguf"), "GGUF\x03");
  for (const char* name : {"empty.safetensors", "cut.safetensors", "short.safetensors", "no.gguf", "none.safetensors"}) {
    for (const std::vector<std::string>& arguments : {std::vector<std::string>{"inspect", scratch.at(name)},
                                                      {"verify", scratch.at(name)},
                                                      {"unpack", scratch.at(name), "-o", scratch.at("out")},
                                                      {"bench", "--file", scratch.at(name)}}) {
      const Ran ran = run_command(arguments);
      EXPECT_EQ(ran.exit_code, 3) << arguments[0] << " " << name << ": " << ran.err;
      const size_t path = ran.err.find(scratch.at(name));
      EXPECT_NE(path, std::string::npos) << ran.err;
      EXPECT_EQ(ran.err.find(scratch.at(name), path + 1), std::string::npos) << "twice: " << ran.err;
      EXPECT_EQ(lines_of(ran.err).size(), 1u) << ran.err;
      EXPECT_THAT(ran.out, IsEmpty());
    }
  }
  EXPECT_EQ(scratch.entries(), 4u) << "unpack left something behind";
}

TEST(Command, AFullDiskForStandardOutputExitsWith3) {
  if (std::ofstream full("/dev/full"); !(full << 'x') || (full << std::flush)) GTEST_SKIP() << "skipped: no /dev/full here";
  const ScratchFolder scratch;
  const std::vector<std::vector<std::string>> commands = {
      {"--version"},
      {"--help"},
      {"inspect", "--help"},
      {"doctor", "--no-measure"},
      {"doctor", "--no-measure", "--json"},
      {"inspect", data("ct-mxfp4")},
      {"inspect", "--json", data("ct-mxfp4")},
      {"verify", data("ct-mxfp4"), "-m", "1", "--rows", "4"},
      {"quantize", data("float-f16"), scratch.at("table"), "--format", "int4"},
      {"quantize", data("float-f16"), scratch.at("json"), "--format", "int4", "--json"},
      {"explain", "-n", "96", "-k", "160"}};
  for (const auto& arguments : commands) {
    const Ran ran = run_command(arguments, {.out = "/dev/full"});
    EXPECT_EQ(ran.exit_code, 3) << testing::PrintToString(arguments);
    EXPECT_THAT(ran.err, StartsWith("metal-marlin: ")) << testing::PrintToString(arguments);
    EXPECT_EQ(lines_of(ran.err).size(), 1u) << ran.err;
  }
  EXPECT_EQ(run_command({"inspect", "nothing"}, {.err = "/dev/full"}).exit_code, 3) << "nobody hears the message";
}

TEST(Command, AnUnknownLayerExitsWith3) {
  const ScratchFolder scratch;
  const Ran ran = run_command({"unpack", data("ct-mxfp4"), "--layer", "nothing", "-o", scratch.at("out")});
  EXPECT_EQ(ran.exit_code, 3);
  EXPECT_THAT(ran.err, HasSubstr("there is no layer 'nothing'"));
  EXPECT_THAT(ran.err, HasSubstr("model.layers.0.mlp.down_proj"));
}

TEST(Unpack, OneLayerOfSeveral) {
  const ScratchFolder scratch;
  const std::string layer = "model.layers.1.mlp.up_proj";
  ASSERT_EQ(run_command({"unpack", data("sharded-gptq"), "--layer", layer, "-o", scratch.at("one")}).exit_code, 0);
  const auto got = read_safetensors(scratch.at("one"));
  ASSERT_EQ(got.size(), 1u);
  EXPECT_TRUE(got.at(layer) == read_safetensors(data("sharded-gptq/decoded.safetensors")).at(layer));
}

TEST(Pack, WritesContainersThatTheOtherCommandsRead) {
  const ScratchFolder scratch;
  const std::string out = scratch.at("model.marlin");
  ASSERT_EQ(run_command({"pack", data("sharded-gptq"), "-o", out}).exit_code, 0);
  EXPECT_EQ(run_command({"verify", out}).exit_code, 0);
  ASSERT_EQ(run_command({"unpack", out, "-o", scratch.at("values")}).exit_code, 0);
  EXPECT_TRUE(read_safetensors(scratch.at("values")) == read_safetensors(data("sharded-gptq/decoded.safetensors")));
  EXPECT_EQ(run_command({"pack", data("sharded-gptq"), "-o", out}).exit_code, 3) << "it is there already";
  EXPECT_EQ(run_command({"pack", data("sharded-gptq"), "-o", out, "--force"}).exit_code, 0);
  // Each rank has a file, whose layers are parts of those of the model.
  ASSERT_EQ(run_command({"pack", data("sharded-gptq"), "-o", out, "--ranks", "2"}).exit_code, 0);
  for (const char* name : {"model-00001-of-00002.marlin", "model-00002-of-00002.marlin"})
    EXPECT_EQ(run_command({"verify", scratch.at(name)}).exit_code, 0) << name;
  // Of the files of several ranks, all are written or none.
  fs::remove(scratch.at("model-00001-of-00002.marlin"));
  EXPECT_EQ(run_command({"pack", data("sharded-gptq"), "-o", out, "--ranks", "2"}).exit_code, 3);
  EXPECT_FALSE(fs::exists(scratch.at("model-00001-of-00002.marlin")));
  const Ran standard = run_command({"pack", data("sharded-gptq"), "-o", "-"});
  EXPECT_EQ(standard.exit_code, 3);
  EXPECT_THAT(standard.err, HasSubstr("cannot write -: expected the name of a file"));
  EXPECT_EQ(run_command({"pack", data("sharded-gptq"), "-o", out, "--ranks", "0"}).exit_code, 2);
  for (const char* backend : {"metal", "cuda"}) {  // which this machine has not
    const std::string other = scratch.at(std::string(backend) + ".marlin");
    ASSERT_EQ(run_command({"pack", data("sharded-gptq"), "-o", other, "--backend", backend}).exit_code, 0);
    const Ran refused = run_command({"verify", other, "--backend", "cpu"});
    EXPECT_NE(refused.exit_code, 0);
    EXPECT_THAT(refused.out + refused.err, HasSubstr(std::string("packed for the device ") + backend));
  }
  EXPECT_EQ(run_command({"pack", data("sharded-gptq"), "-o", out, "--backend", "auto"}).exit_code, 2);
  const Ran many = run_command({"pack", data("sharded-gptq"), "-o", scratch.at("many"), "--ranks", "1000"});
  EXPECT_EQ(many.exit_code, 3);
  EXPECT_THAT(many.err, HasSubstr("cannot be cut into 1000 parts"));
}

// What a backend refuses stays as it is, and is said: here a tensor scale that divides.
TEST(Pack, LeavesLayersThatABackendRefusesAsTheyAre) {
  const ScratchFolder scratch;
  const std::string out = scratch.at("model.marlin");
  const Ran whole = run_command({"pack", data("mlx-experts"), "-o", out});
  EXPECT_EQ(whole.err, "");
  for (const char* backend : {"metal", "cuda"}) {
    const Ran some = run_command({"pack", data("mlx-experts"), "-o", out, "--force", "--backend", backend});
    EXPECT_EQ(some.exit_code, 0) << some.err;
    EXPECT_THAT(some.err, HasSubstr("' stays as it is: this device takes no tensor scale that is divided by"));
    EXPECT_NE(some.out, whole.out) << "how many layers are packed";
    EXPECT_EQ(run_command({"inspect", out}).exit_code, 0);
  }
  const Ran none = run_command({"pack", data("ct-sparse-24-bitmask"), "-o", scratch.at("none.marlin"), "--backend", "metal"});
  EXPECT_EQ(none.exit_code, 3);
  EXPECT_FALSE(fs::exists(scratch.at("none.marlin")));
}

TEST(Unpack, FloatsBecomeTheValuesOfTheFormat) {
  const ScratchFolder scratch;
  const std::string out = scratch.at("quantized.safetensors"), layer = "encoder.layer.0.attention.self.query";
  ASSERT_EQ(run_command({"unpack", data("float-f32"), "--format", "mxfp4", "-o", out}).exit_code, 0);
  const auto got = read_safetensors(out), floats = read_safetensors(data("float-f32/decoded.safetensors"));
  EXPECT_EQ(got.at(layer).shape, floats.at(layer).shape);
  EXPECT_FALSE(got.at(layer) == floats.at(layer));
}

TEST(Unpack, AFailureLeavesTheOldFileAlone) {
  const ScratchFolder scratch;
  write_file(scratch.at("out"), "precious");
  EXPECT_EQ(run_command({"unpack", data("float-f32"), "--format", "int4", "--group", "24", "-o", scratch.at("out")}).exit_code,
            3);
  EXPECT_EQ(read_file(scratch.at("out")), "precious");
  EXPECT_EQ(scratch.entries(), 1u);
  EXPECT_EQ(run_command({"unpack", data("ct-mxfp4"), "-o", scratch.at("no/such/folder")}).exit_code, 3);
}

TEST(Unpack, WhatIsThereIsReplacedOnlyByForce) {
  const ScratchFolder scratch;
  const std::string out = scratch.at("values.safetensors");
  write_file(out, "precious");
  const Ran refused = run_command({"unpack", data("ct-mxfp4"), "-o", out});
  EXPECT_EQ(refused.exit_code, 3);
  EXPECT_THAT(refused.err, HasSubstr("is there already (--force replaces it)"));
  EXPECT_EQ(read_file(out), "precious");
  EXPECT_EQ(run_command({"unpack", data("ct-mxfp4"), "-o", out, "--force"}).exit_code, 0);
  EXPECT_TRUE(read_safetensors(out) == read_safetensors(data("ct-mxfp4/decoded.safetensors")));
  EXPECT_EQ(scratch.entries(), 1u);
}

TEST(Unpack, NoFileOfTheInputIsReplacedUnderAnyName) {
  const ScratchFolder scratch;
  const std::string model = scratch.at("model");
  fs::copy(data("sharded-gptq"), model);
  std::map<std::string, std::string> before;
  for (const auto& entry : fs::directory_iterator(model))
    before[entry.path().filename().string()] = read_file(entry.path().string());
  ASSERT_TRUE(before.contains("config.json"));
  ASSERT_TRUE(before.contains("model.safetensors.index.json"));
  before.erase("decoded.safetensors");  // which is beside the model, no part of it
  for (const std::string& input : {model, model + "/model.safetensors.index.json"}) {
    for (const auto& [name, content] : before) {
      const std::string file = model + "/" + name, hard = scratch.at("hard"), soft = scratch.at("soft");
      fs::create_hard_link(file, hard);
      fs::create_symlink(file, soft);
      for (const std::string& out : {file, hard, soft, model + "/../model/./" + name}) {
        for (const bool force : {false, true}) {
          std::vector<std::string> arguments = {"unpack", input, "-o", out};
          if (force) arguments.push_back("--force");
          const Ran ran = run_command(arguments);
          EXPECT_EQ(ran.exit_code, 3) << out;
          EXPECT_THAT(ran.err, HasSubstr("is part of the input")) << out;
          EXPECT_EQ(read_file(file), content) << out;
        }
      }
      fs::remove(hard);
      fs::remove(soft);
    }
  }
  EXPECT_EQ(scratch.entries(), 1u);
}

TEST(Unpack, OnlyRegularFilesAreReplaced) {
  const ScratchFolder scratch;
  write_file(scratch.at("target"), "precious");
  fs::create_symlink(scratch.at("target"), scratch.at("link"));
  fs::create_symlink(scratch.at("nothing"), scratch.at("dangling"));
  fs::create_directory(scratch.at("folder"));
  ASSERT_EQ(mkfifo(scratch.at("pipe").c_str(), 0600), 0);
  // All in the scratch folder: run by root, a command that fails this test replaces the nodes of /dev themselves.
  std::vector<std::pair<std::string, const char*>> obstacles = {{scratch.at("link"), "symbolic link"},
                                                                {scratch.at("dangling"), "symbolic link"},
                                                                {scratch.at("folder"), "folder"},
                                                                {scratch.at("pipe"), "pipe"}};
  fs::create_symlink("/proc/self/fd/1", scratch.at("stdout"));
  obstacles.emplace_back(scratch.at("stdout"), "symbolic link");
#if defined(__linux__)  // where the number of a device is known
  if (mknod(scratch.at("null").c_str(), S_IFCHR | 0600, makedev(1, 3)) == 0)
    obstacles.emplace_back(scratch.at("null"), "device");
#endif
  const size_t entries = scratch.entries();
  for (const auto& [out, what] : obstacles) {
    for (const char* force : {"--force", "--layer=model.layers.0.mlp.down_proj"}) {
      const Ran ran = run_command({"unpack", data("ct-mxfp4"), "-o", out, force});
      EXPECT_EQ(ran.exit_code, 3) << out;
      EXPECT_THAT(ran.err, HasSubstr(std::string("expected a new name or a regular file, found a ") + what)) << out;
      EXPECT_THAT(ran.out, IsEmpty());
    }
  }
  EXPECT_TRUE(fs::is_symlink(scratch.at("link")));
  EXPECT_EQ(read_file(scratch.at("target")), "precious");
  EXPECT_EQ(scratch.entries(), entries);
  const Ran dash = run_command({"unpack", data("ct-mxfp4"), "-o", "-"});
  EXPECT_EQ(dash.exit_code, 3);
  EXPECT_THAT(dash.err, HasSubstr("expected the name of a file"));
}

TEST(Verify, AWrongBitInTheExpectedValuesIsFound) {
  const ScratchFolder scratch;
  std::string values = read_file(data("ct-nvfp4/decoded.safetensors"));
  values[values.size() - 1000] ^= 1;
  write_file(scratch.at("values.safetensors"), values);
  const Ran ran = run_command({"verify", data("ct-nvfp4"), "--expect", scratch.at("values.safetensors")});
  EXPECT_EQ(ran.exit_code, 1);
  EXPECT_THAT(ran.out, HasSubstr("1 differ"));
  EXPECT_THAT(ran.out, HasSubstr("WRONG"));
}

TEST(Verify, ASampleOfRowsAndOneLayer) {
  const Ran ran = run_command({"verify", data("gguf-mixed"), "--layer", "blk.0.ffn_down.weight", "--rows", "6", "-m", "2"});
  EXPECT_EQ(ran.exit_code, 0) << ran.out << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("1 right, 0 wrong"));
}

TEST(Explain, NamesTheKernel) {
  const Ran ran = run_command({"explain", "--format", "nvfp4", "-n", "64", "-k", "48", "-m", "1,16", "--compute", "int8"});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_THAT(ran.out, StartsWith("M: 1\nkernel: "));
  EXPECT_THAT(ran.out, HasSubstr("\nM: 16\nkernel: "));
}

TEST(Doctor, DescribesTheMachine) {
  const Ran ran = run_command({"doctor", "--no-measure"});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("cpu"));
  EXPECT_THAT(ran.out, HasSubstr("processor"));
  EXPECT_THAT(ran.out, Not(HasSubstr("reading memory")));
}

TEST(Command, WhatIsNotServedIsNeitherWrongNorOfNoSize) {
  const ScratchFolder scratch;
  const std::string path = scratch.at("one.safetensors");
  write_file(path, model_files::safetensors({{"a.weight", "I8", "4,8", std::string(32, '\1')}}));
  const Ran table = run_command({"inspect", path});
  EXPECT_EQ(table.exit_code, 1) << table.err;
  EXPECT_THAT(table.out, Not(HasSubstr("0 x 0")));
  const auto json = tools::Json::parse(run_command({"inspect", "--json", path}).out);
  const auto& layer = json.at("layers").at(0);
  EXPECT_FALSE(layer.at("loads").boolean());
  EXPECT_EQ(layer.at("status"), "MARLIN_E_UNSUPPORTED");
  EXPECT_NE(layer.at("n"), 0);
  EXPECT_NE(layer.at("k"), 0);
  EXPECT_NE(layer.at("why_not"), "");
  const Ran verified = run_command({"verify", path});
  EXPECT_THAT(verified.out, HasSubstr("0 right, 0 wrong, 1 not served"));
  EXPECT_EQ(verified.exit_code, 1) << "nothing was verified";
}

TEST(Command, InspectTellsEachLayerApart) {
  const auto layer = [](const char* folder) {
    return tools::Json::parse(run_command({"inspect", "--json", data(folder)}).out).at("layers").at(0);
  };
  const auto act_order = layer("gptq-v1-asym-g64-actorder");
  EXPECT_EQ(act_order.at("layout"), "gptq-v1");
  EXPECT_EQ(act_order.at("group"), 64);
  EXPECT_TRUE(act_order.at("act_order").boolean());
  EXPECT_EQ(act_order.at("zeros"), "integer");
  EXPECT_FALSE(act_order.at("sparse_2_4").boolean());
  const double bytes = act_order.at("bytes").number(), n = act_order.at("n").number(), k = act_order.at("k").number();
  EXPECT_DOUBLE_EQ(act_order.at("bits_a_weight").number(), 8 * bytes / (n * k));
  EXPECT_GT(act_order.at("bits_a_weight").number(), 4.3) << "4 bits and a scale of 16 and a zero of 4 for 64, and the index";
  EXPECT_EQ(layer("mlx-affine-g32").at("zeros"), "additive");
  EXPECT_TRUE(layer("ct-marlin-24-g128").at("sparse_2_4").boolean());
  EXPECT_EQ(layer("ct-marlin-24-g128").at("layout"), "marlin-24");
  EXPECT_EQ(layer("ct-marlin-24-g128").at("zeros"), "none");
}

/// A GGUF with one row of Q4_0 and a layer of floats that int4 cannot hold, of hostile names.
std::string hostile_gguf() {
  std::string infos, data;
  const auto number = [](std::string& to, auto value) { to.append(reinterpret_cast<const char*>(&value), sizeof value); };
  const auto tensor = [&](const std::string& name, uint64_t k, uint32_t type, size_t bytes) {
    number(infos, uint64_t{name.size()});
    infos += name;
    number(infos, uint32_t{2});
    number(infos, k);
    number(infos, uint64_t{1});
    number(infos, type);
    number(infos, uint64_t{data.size()});
    data.append((bytes + 31) / 32 * 32, '\0');
  };
  tensor("a\x1b[2J\x1b]0;title\x07\nall right\xff\xc2\x9b\xe2\x80\xae.weight", 32, 2, 18);
  tensor("b\x1b[2J\ngood\xe2\x80\xae.weight", 40, 0, 160);
  std::string file("GGUF\3\0\0\0", 8);
  number(file, uint64_t{2});
  number(file, uint64_t{0});
  file += infos;
  file.resize((file.size() + 31) / 32 * 32, '\0');
  return file + data;
}

TEST(Command, HostileNamesAreEscaped) {
  const ScratchFolder scratch;
  const std::string model = scratch.at("model.gguf");
  write_file(model, hostile_gguf());
  const std::vector<std::string> quantize = {"quantize", model,          scratch.at("out.gguf"), "--format",
                                             "int4",     "--requantize", "--skip-unfit",         "--force"};
  std::vector<std::string> quantize_json = quantize;
  quantize_json.emplace_back("--json");
  const std::vector<std::vector<std::string>> commands = {{"inspect", model},
                                                          {"inspect", "--json", model},
                                                          {"verify", model, "-m", "1"},
                                                          {"unpack", model, "-o", scratch.at("values")},
                                                          {"unpack", model, "-o", scratch.at("one"), "--layer", "nothing"},
                                                          quantize,
                                                          quantize_json};
  for (const auto& arguments : commands) {
    SCOPED_TRACE(testing::PrintToString(arguments));
    const Ran ran = run_command(arguments);
    EXPECT_LE(ran.exit_code, 3);
    const std::string all = ran.out + ran.err;
    EXPECT_THAT(all, Not(HasSubstr("exception")));
    for (const char* raw : {"\x1b", "\x07", "\nall right", "\ngood", "\xff", "\xc2\x9b", "\xe2\x80\xae"}) {
      EXPECT_THAT(all, Not(HasSubstr(raw)));
    }
    EXPECT_THAT(all, HasSubstr("[2J"));
    if (arguments.back() != "--json" && arguments[1] != "--json") continue;
    const auto said = tools::Json::parse(ran.out);
    EXPECT_THAT(said.at("layers").dump(), HasSubstr("\\u001b[2J"));
  }
  const auto values = read_safetensors(scratch.at("values"));
  EXPECT_EQ(values.size(), 1u) << "a name that is no UTF-8 has no place in a .safetensors";
}

}  // namespace
}  // namespace metal_marlin::test
