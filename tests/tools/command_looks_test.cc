// How the command looks and speaks: tables that fit, colors, suggestions, reasons told once, noise.
#include <fcntl.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "model_files.h"
#include "run_command.h"
#include "test.h"
#include "tools/measure.h"
#include "tools/neighbors.h"
#include "tools/notes.h"
#include "tools/table.h"
#include "tools/words.h"

namespace metal_marlin::test {
namespace {

using tools::Table;

constexpr const char* kRed = "\033[31m";

Table two_columns() { return Table({{"name"}, {"n", Table::Align::right}, {"empty"}}); }

TEST(Tables, EmptyColumnsAreLeftOut) {
  Table table = two_columns();
  EXPECT_EQ(table.render(), "name  n  empty\n----  -  -----\n") << "a table without rows says what it would have";
  table.row({"a", "1", ""});
  EXPECT_EQ(table.render(), "name  n\n----  -\na     1\n");
  table.row({"b", "2", "x"});
  EXPECT_EQ(table.render(), "name  n  empty\n----  -  -----\na     1\nb     2  x\n");
}

TEST(Tables, FitByCuttingTheMiddleOfTexts) {
  Table table = two_columns();
  table.row({"model.layers.10.mlp.down_proj", "123456", ""});
  table.row({"ähnlich", "7", ""});
  table.fit(30);
  EXPECT_EQ(table.render(),
            "name                         n\n"
            "----------------------  ------\n"
            "model.laye…p.down_proj  123456\n"
            "ähnlich                      7\n");
  table.fit(5);  // numbers stay whole, and 14 characters of texts
  EXPECT_THAT(table.render(), HasSubstr("model.…wn_proj  123456\n"));
}

TEST(Tables, WhatIsTheSameEverywhereIsToldOnce) {
  Table table({{"layer"}, {"layout"}, {"N"}});
  table.row({"a", "gguf", "1"});
  table.row({"b", "gguf", "2"});
  table.fit(80);
  EXPECT_THAT(table.render(), StartsWith("layer  layout  N\n")) << "there is room";
  table.fit(10);
  EXPECT_EQ(table.render(), "everywhere: layout gguf\n\nlayer  N\n-----  -\na      1\nb      2\n");
}

TEST(Tables, ASingleRowIsToldToo) {
  Table table({{"layer"}, {"layout"}, {"N"}});
  table.row({"a", "gguf", "1"});
  table.fit(10);
  EXPECT_EQ(table.render(), "everywhere: layout gguf\n\nlayer  N\n-----  -\na      1\n");
}

TEST(Tables, DetailsAreLeftOutLastOnesFirst) {
  const auto fitted = [](size_t width) {
    Table table({{"layer"}, {"size", Table::Align::right, true}, {"N"}, {"nmse", Table::Align::right, true}});
    table.row({"a layer with a long name", "12.5 kB", "1", "1e-15"});
    table.row({"b", "1.5 kB", "2", "2e-15"});
    table.fit(width);
    return table.render();
  };
  EXPECT_THAT(fitted(38), StartsWith("too wide for this terminal: nmse\n\n"
                                     "layer                        size  N\n"));
  EXPECT_THAT(fitted(35), StartsWith("too wide for this terminal: size, nmse\n\n"
                                     "layer                     N\n"));
  EXPECT_THAT(fitted(20), StartsWith("too wide for this terminal: size, nmse\n\n"
                                     "layer              N\n"));
}

/// Names of layers and of kernels, drawn by chance, at every width.
TEST(Tables, NoTwoTextsBecomeOne) {
  std::mt19937 random(1);
  const auto one_of = [&](std::vector<const char*> words) { return std::string(words[random() % words.size()]); };
  for (int round = 0; round < 200; ++round) {
    std::set<std::string> names;
    while (names.size() < 12) {
      const std::string block = std::to_string(random() % 30), kind = one_of({"q", "k", "v", "gate", "up", "down"});
      names.insert(one_of({"blk.", "model.layers.", "cpu_avx512_"}) + block +
                   one_of({".attn_", ".mlp.", ".mlp.experts.shared.", "_m1_n16_many_"}) + kind +
                   one_of({"", ".weight", "_proj", "_bf16"}));
    }
    const size_t width = 10 + random() % 60;
    Table table({{"layer"}});
    for (const std::string& name : names) table.row({name});
    table.fit(width);
    std::istringstream text(table.render());
    std::set<std::string> lines;
    for (std::string line; std::getline(text, line);) lines.insert(line);
    EXPECT_EQ(lines.size(), names.size() + 2) << "round " << round << ", " << width << " columns:\n" << table.render();
  }
}

TEST(Tables, AFrontThatSaysLessIsCutFirst) {
  Table table({{"name"}});
  for (const char* name : {"model.layers.10.mlp.down", "model.layers.11.mlp.down"}) table.row({name});
  table.fit(15);
  EXPECT_EQ(table.render(), "name\n---------------\n…rs.10.mlp.down\n…rs.11.mlp.down\n");
}

/// What the command prints on a terminal of 80 columns, line by line.
std::vector<std::string> on_a_terminal(const std::vector<std::string>& arguments) {
  const int terminal = posix_openpt(O_RDWR | O_NOCTTY);
  EXPECT_TRUE(terminal >= 0 && grantpt(terminal) == 0 && unlockpt(terminal) == 0);
  const std::string name = ptsname(terminal);
  const int held = open(name.c_str(), O_RDWR | O_NOCTTY);  // keeps the text until it is read
  winsize size = {};
  size.ws_row = 25, size.ws_col = 80;
  EXPECT_EQ(ioctl(held, TIOCSWINSZ, &size), 0);
  constexpr char kEnd = '\1';  // of the text
  std::string text;
  std::thread reader([&] {
    char piece[4096];
    while (text.find(kEnd) == std::string::npos) {
      const ssize_t n = read(terminal, piece, sizeof piece);
      if (n <= 0) break;
      text.append(piece, static_cast<size_t>(n));
    }
  });
  RunOptions options;
  options.out = name;
  EXPECT_EQ(run_command(arguments, options).exit_code, 0);
  EXPECT_EQ(write(held, &kEnd, 1), 1);
  close(held);
  reader.join();
  close(terminal);
  std::vector<std::string> lines;
  std::istringstream in(text.substr(0, text.find(kEnd)));
  for (std::string line; std::getline(in, line);) lines.push_back(line.substr(0, line.find('\r')));
  return lines;
}

/// Characters, of which some have several bytes.
size_t characters(const std::string& line) {
  return static_cast<size_t>(std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

TEST(Verify, FitsEightyColumns) {
  const auto lines = on_a_terminal({"verify", data("gguf-mixed"), "-m", "1"});
  EXPECT_THAT(lines, testing::Contains("too wide for this terminal: nmse, nmse int8"));
  size_t cells = 0;
  for (const std::string& line : lines) {
    if (!line.starts_with("blk.") && !line.starts_with("layer ") && !line.starts_with("----")) continue;
    ++cells;
    EXPECT_LE(characters(line), 80u) << line;
  }
  EXPECT_GT(cells, 7u);
}

TEST(Inspect, FitsEightyColumns) {
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(data(""))) {
    if (!entry.is_directory()) continue;
    ++files;
    const auto lines = on_a_terminal({"inspect", entry.path().string(), "--color", "never"});
    EXPECT_GT(lines.size(), 3u) << entry.path();
    for (const std::string& line : lines) {
      EXPECT_LE(characters(line), 80u) << entry.path() << ": " << line;
    }
  }
  EXPECT_GT(files, 40u);
}

TEST(Words, PluralsAndSuggestions) {
  EXPECT_EQ(tools::counted(1, "layer"), "1 layer");
  EXPECT_EQ(tools::counted(0, "layer"), "0 layers");
  const std::vector<std::string> words = {"inspect", "verify", "bench"};
  EXPECT_EQ(tools::most_like("insepct", words), "inspect");
  EXPECT_EQ(tools::most_like("ver", words), "verify");
  EXPECT_EQ(tools::most_like("frobnicate", words), "");
}

TEST(Notes, ReasonsThatDifferInTheNameAloneAreOne) {
  tools::Notes notes;
  EXPECT_EQ(notes.add("a.0", "layer 'a.0': type Q9"), 1u);
  EXPECT_EQ(notes.add("a.1", "layer 'a.1': type Q9"), 1u);
  EXPECT_EQ(notes.add("a.2", "layer 'a.2': type Q8"), 2u);
  EXPECT_THAT(notes.repeated(), ElementsAre("1 more layer: type Q9"));
}

TEST(Quantize, SaysOnceWhatSeveralLayersHave) {
  const std::string out = (std::filesystem::path(testing::TempDir()) / "said-once.gguf").string();
  const Ran ran = run_command({"quantize", data("gguf-llama-q4km"), out, "--format", "q4_0", "--requantize", "--force"});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_THAT(ran.err, HasSubstr("layer 'blk.0.attn_k.weight': quantized already (INT4), so decoded and quantized again\n"));
  EXPECT_THAT(ran.err, HasSubstr("metal-marlin: 3 more layers: quantized already (INT4), so decoded and quantized again\n"));
  EXPECT_THAT(ran.err, Not(HasSubstr("'blk.0.ffn_up.weight'")));
  std::filesystem::remove(out);
}

TEST(Noise, IsToldIfItWasMuch) {
  std::vector<tools::Measurement> all(2);
  all[1].limit_spread = 0.1;
  all[1].other_processors = 0.1;
  EXPECT_EQ(tools::noise_text(all), "");
  all[0].limit_spread = 0.304;
  EXPECT_EQ(tools::noise_text(all), "the limits varied by 30 %");
  all[1].other_processors = 1.23;
  EXPECT_THAT(tools::noise_text(all), StartsWith("the limits varied by 30 %; other processes had 1.2 of "));
}

TEST(Noise, WorkOfThisProcessIsNone) {
  const tools::Neighbors neighbors;
  volatile double sum = 0;
  for (int i = 0; i < 50'000'000; ++i) sum = sum + 1;
  EXPECT_GE(neighbors.processors(), 0);
  EXPECT_LT(neighbors.processors(), 4096);
}

TEST(Command, SuggestsACommand) {
  const Ran ran = run_command({"insepct", "x"});
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_THAT(ran.err,
              StartsWith("metal-marlin: there is no command 'insepct'; did you mean 'inspect'? The commands are doctor, "));
  EXPECT_THAT(run_command({"--color", "never", "frobnicate"}).err,
              HasSubstr("there is no command 'frobnicate'. The commands are"));
  EXPECT_THAT(run_command({"help"}).err, HasSubstr("there is no command 'help'; did you mean '--help'?"));
}

TEST(Command, SuggestsAnOption) {
  const Ran ran = run_command({"bench", "--formt", "int4"});
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_EQ(ran.err,
            "metal-marlin: there is no option '--formt'; did you mean '--format'?\n"
            "Try 'metal-marlin bench --help'.\n");
  EXPECT_THAT(run_command({"inspect", "--frobnicate=1"}).err, StartsWith("metal-marlin: there is no option '--frobnicate'\n"));
}

TEST(Command, NamesTheCommandsWhereThereIsNone) {
  const Ran ran = run_command({});
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_THAT(ran.err, StartsWith("metal-marlin: expected a command, found none. The commands are doctor, inspect, "));
}

TEST(Command, SuggestsALayer) {
  const Ran ran = run_command({"verify", data("gguf-mixed"), "--layer", "blk.0.ffn_dwn.weight"});
  EXPECT_EQ(ran.exit_code, 3);
  EXPECT_THAT(
      ran.err,
      HasSubstr("there is no layer 'blk.0.ffn_dwn.weight'; did you mean 'blk.0.ffn_down.weight'? The file has 7 layers"));
}

/// A .safetensors file of 8-bit integers, which are of no layout that is read, and of one layer of floats.
std::string write_unread(const ScratchFolder& scratch, int layers) {
  std::vector<model_files::TestTensor> tensors;
  for (int i = 0; i < layers; ++i)
    tensors.push_back({"blk." + std::to_string(i) + ".weight", "I8", "4,8", std::string(32, '\1')});
  tensors.push_back({"floats.weight", "F32", "4,8", std::string(128, '\1')});
  write_file(scratch.at("unread.safetensors"), model_files::safetensors(tensors));
  return scratch.at("unread.safetensors");
}

TEST(Command, ReasonsAreToldOnceAndLayersThatAreNotReadAreNoFloats) {
  const ScratchFolder scratch;
  const std::string path = write_unread(scratch, 12);
  const Ran inspected = run_command({"inspect", path});
  EXPECT_EQ(inspected.exit_code, 1) << inspected.err;
  EXPECT_THAT(inspected.out, AllOf(HasSubstr("no (1)"), HasSubstr(": 12 layers, the first blk.0\n"), Not(HasSubstr("(2)"))));
  const Ran verified = run_command({"verify", path, "-m", "1"});
  EXPECT_THAT(verified.out, AllOf(HasSubstr("not served (1)"), HasSubstr(": 12 layers, the first blk.0\n")));
  for (const char* command : {"bench", "explain"}) {
    const Ran ran = run_command({command, "--file", path, "--layer", "blk.3"});
    EXPECT_EQ(ran.exit_code, 3);
    EXPECT_THAT(ran.err, AllOf(HasSubstr("'blk.3' is not read: "), Not(HasSubstr("--format"))));
  }
  const Ran all = run_command({"bench", "--file", path, "-m", "1", "--seconds", "0.001", "--compute", "default"});
  EXPECT_EQ(all.exit_code, 0) << all.err;
  EXPECT_THAT(all.err, HasSubstr("left out 12 layers that would not load"));
}

TEST(Quantize, LayersThatAreNotReadAreNoFloats) {
  model_files::GgufWriter file;
  file.tensor("unread.weight", {256, 1}, 16, std::string(66, '\0'));  // IQ2_XXS
  file.tensor("floats.weight", {256, 1}, 0, std::string(1024, '\0'));
  const ScratchFolder scratch;
  write_file(scratch.at("in.gguf"), file.file());
  for (const char* how : {"--skip-unfit", "--force"}) {
    const Ran ran = run_command({"quantize", scratch.at("in.gguf"), scratch.at("out.gguf"), "--format", "Q4_0", how});
    EXPECT_EQ(ran.exit_code, 1) << ran.err;
    EXPECT_THAT(ran.out, testing::ContainsRegex("unread.weight +not read +left as it is +IQ2_XXS"));
    EXPECT_THAT(ran.out, testing::ContainsRegex("floats.weight +float +int4 +F32 +Q4_0"));
    EXPECT_THAT(ran.out, HasSubstr("type IQ2_XXS is not read"));
    EXPECT_THAT(ran.out, HasSubstr("left as it is: 1 matrix with 5.9 % of the bytes, unread.weight"));
  }
}

TEST(Command, WhatIsWrongIsRedWhereColorsAreShown) {
  const ScratchFolder scratch;
  const std::string path = write_unread(scratch, 1);
  EXPECT_THAT(run_command({"inspect", path}).out, Not(HasSubstr("\033"))) << "no terminal";
  EXPECT_THAT(run_command({"inspect", path, "--color", "never"}).out, Not(HasSubstr("\033")));
  EXPECT_THAT(run_command({"inspect", path, "--color", "always"}).out, HasSubstr(std::string(kRed) + "blk.0"));
  EXPECT_THAT(run_command({"--color", "always", "inspect", path}).out, HasSubstr(kRed));
  const Ran wrong = run_command({"inspect", path, "--color", "pink"});
  EXPECT_EQ(wrong.exit_code, 2) << wrong.err;
}

TEST(Bench, MarksComputesThatAFormatDoesNotHave) {
  const std::vector<std::string> small = {"bench", "-n", "64", "-k", "64", "-m", "1", "--format", "int4", "--seconds", "0.001"};
  std::vector<std::string> arguments = small;
  arguments.insert(arguments.end(), {"--backend", "cpu", "--compute", "default,fp8"});
  const Ran some = run_command(arguments);
  EXPECT_EQ(some.exit_code, 0) << some.err;
  EXPECT_THAT(some.out, AllOf(HasSubstr("not served (1)"), HasSubstr("\n(1) "), HasSubstr("limits of the same run")));
  EXPECT_THAT(some.out, Not(HasSubstr("over dense"))) << "a column without numbers";
  arguments.back() = "fp8";
  const Ran none = run_command(arguments);
  EXPECT_EQ(none.exit_code, 3);
  EXPECT_THAT(none.err, HasSubstr("no kernel of this backend does any of these products"));
  arguments.push_back("--json");
  EXPECT_THAT(run_command(arguments).out, IsEmpty());
}

}  // namespace
}  // namespace metal_marlin::test
