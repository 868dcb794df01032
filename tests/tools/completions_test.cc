// The scripts that complete command lines: all that the help has is in them, and shells take them as they are meant.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>

#include "run_command.h"

namespace metal_marlin::test {
namespace {

using Words = std::vector<std::string>;
using testing::UnorderedElementsAreArray;

constexpr const char* kShells[] = {"bash", "zsh", "fish"};

std::string script_for(const std::string& shell) {
  const Ran ran = run_command({"completions", shell});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  return ran.out;
}

/// The first group of each match.
Words matches(const std::string& text, const std::string& pattern) {
  const std::regex regex(pattern, std::regex::ECMAScript | std::regex::multiline);
  return {std::sregex_token_iterator(text.begin(), text.end(), regex, 1), {}};
}
std::string help_of(const Words& command) {
  Words arguments = command;
  arguments.emplace_back("--help");
  return run_command(arguments).out;
}
Words commands() {
  const std::string help = help_of({});
  return matches(help.substr(help.find("Subcommands:")), R"(^  ([a-z]+) )");
}
/// The part of a script that is about one command.
std::string part(const std::string& shell, const std::string& script, const std::string& command) {
  if (shell == "bash") return testing::PrintToString(matches(script, "^    '" + command + " '\\*\\)(.*)$"));
  if (shell == "zsh") return testing::PrintToString(matches(script, "^argument-" + command + R"(\)([^;]*(;[^;]+)*);;$)"));
  return testing::PrintToString(matches(script, "__fish_seen_subcommand_from " + command + "'(.*)$"));
}
std::string spelled(const std::string& shell, const std::string& option) {
  if (shell != "fish") return option;
  return option[1] == '-' ? "-l " + option.substr(2) : "-s " + option.substr(1);
}

TEST(Completions, HaveAllThatTheHelpHas) {
  ASSERT_GE(commands().size(), 9u);
  for (const std::string shell : kShells) {
    const std::string script = script_for(shell);
    for (const std::string& command : commands()) {
      EXPECT_TRUE(std::regex_search(script, std::regex("[ ']" + command + "[ ':]"))) << shell << ": " << command;
      const std::string about = part(shell, script, command), help = help_of({command});
      Words options = matches(help, R"(^  (-[a-z]|--[a-z-]+))");
      for (const std::string& longer : matches(help, R"(^  -[a-z],(--[a-z-]+))")) options.push_back(longer);
      EXPECT_GE(options.size(), 2u) << command;  // --help has two spellings
      for (const std::string& option : options)
        EXPECT_TRUE(std::regex_search(about, std::regex("[ '*]" + spelled(shell, option) + "[ '=\\[]")))
            << shell << ": " << command << " " << option << " in " << about;
    }
  }
}

/// Where it is; empty: nowhere.
std::string path_of(const std::string& shell) {
  const std::string path = run_command({"-c", "command -v " + shell}, {.program = "/bin/sh"}).out;
  return path.substr(0, path.find('\n'));
}

class Shell : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (path_.empty()) GTEST_SKIP() << "skipped: there is no " << GetParam();
    write_file(script_, script_for(GetParam()));
  }
  const std::string path_ = path_of(GetParam());
  const ScratchFolder folder_;
  const std::string script_ = folder_.at("script");
};

TEST_P(Shell, FindsNoFault) {
  const Ran ran = run_command({"-n", script_}, {.program = path_});
  EXPECT_EQ(ran.exit_code, 0);
  EXPECT_EQ(ran.err, "");
}
INSTANTIATE_TEST_SUITE_P(Completions, Shell, testing::ValuesIn(kShells));

// The shells that say without a terminal what they would complete.
class Completing : public Shell {
 protected:
  /// What the last of these words may become.
  Words completed(const Words& words) {
    const bool bash = GetParam() == std::string("bash");
    Words arguments = {"--norc", "-c",
                       "source " + script_ +
                           "; COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); _metal_marlin 2>/dev/null; "
                           "printf '%s\\n' \"${COMPREPLY[@]}\"",
                       "bash", "metal-marlin"};
    if (!bash)
      arguments = {"--no-config", "-c", "source " + script_ + "; complete -C (string join ' ' -- $argv)", "metal-marlin"};
    arguments.insert(arguments.end(), words.begin(), words.end());
    Words found = matches(run_command(arguments, {.program = path_}).out, "^([^\t\n]+)");  // fish adds a tab and what it means
    return found;
  }
};

TEST_P(Completing, FindsCommandsOptionsValuesAndFiles) {
  write_file(folder_.at("model one.gguf"), "");
  const struct {
    Words words, expected;
  } cases[] = {
      {{"be"}, {"bench"}},
      {{"--ver"}, {"--version"}},
      {{"bench", "--back"}, {"--backend"}},
      {{"explain", "--json", "--back"}, {"--backend"}},
      {{"bench", "--backend", ""}, {"auto", "cpu", "cuda", "metal"}},
      {{"explain", "--compute", "d"}, {"default"}},
      {{"bench", "--format", "int4,mx"}, {"int4,mxfp4"}},
      {{"quantize", "--sparse", ""}, {"2:4", "as-is"}},
      {{"quantize", "--layout", "g"}, {"gguf", "gptq"}},
      {{"bench", "--seconds", ""}, {}},
      {{"completions", "f"}, {"fish"}},
      {{"doctor", folder_.at("mo")}, {}},
      {{"inspect", folder_.at("mo")}, {folder_.at("model one.gguf")}},
      {{"inspect", "--json", folder_.at("mo")}, {folder_.at("model one.gguf")}},
      {{"report", "-o", folder_.at("mo")}, {folder_.at("model one.gguf")}},
  };
  for (const auto& [words, expected] : cases) {
    SCOPED_TRACE(testing::PrintToString(words));
    EXPECT_THAT(completed(words), UnorderedElementsAreArray(expected));
  }
  if (GetParam() != std::string("bash")) return;  // fish takes --name=value apart by itself
  EXPECT_THAT(completed({"bench", "--backend", "=", "m"}), UnorderedElementsAreArray({"metal"}));
  EXPECT_THAT(completed({"bench", "--backend", "="}), UnorderedElementsAreArray({"auto", "cpu", "cuda", "metal"}));
}
INSTANTIATE_TEST_SUITE_P(Completions, Completing, testing::Values("bash", "fish"));

}  // namespace
}  // namespace metal_marlin::test
