// The drawings and computed tables of docs/formats.md and of decision 0004 are those that their scripts write.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <string>

namespace {

struct Ran {
  int exit_code = -1;
  std::string text;
};

Ran run(const std::string& command) {
  Ran ran;
  std::FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return ran;
  std::array<char, 256> part{};
  while (std::fgets(part.data(), part.size(), pipe) != nullptr) ran.text += part.data();
  const int status = pclose(pipe);
  ran.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return ran;
}

TEST(Structure, DiagramsAreWhatTheirScriptWrites) {
  if (run("python3 -c 'import pathlib'").exit_code != 0) GTEST_SKIP() << "there is no python3 here";
  for (const std::string script : {"diagrams.py", "metal.py"}) {
    const Ran ran = run("python3 -B '" MARLIN_SOURCE_ROOT "/docs/" + script + "' --check");
    EXPECT_EQ(ran.exit_code, 0) << ran.text;
  }
}

}  // namespace
