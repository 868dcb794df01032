// docs/adding-a-format.md, followed to the letter: its blocks are applied to a copy of the sources, and what comes out is built
// and run. Only the files that the page changes are compiled; the rest comes from the library that is there.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;

const fs::path kProject = MARLIN_SOURCE_ROOT;

std::string read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

void write(const fs::path& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

/// A fenced block of the page.
struct Block {
  std::string language, first_line, rest;
};

std::vector<Block> blocks_of(const std::string& page) {
  std::vector<Block> blocks;
  std::istringstream lines(page);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("```")) continue;
    Block block;
    block.language = line.substr(3);
    std::getline(lines, block.first_line);
    while (std::getline(lines, line) && line != "```") block.rest.append(line).append("\n");
    blocks.push_back(block);
  }
  return blocks;
}

/// Replaces the lines with " " and "-" by those with " " and "+". They must stand in the file, in one place.
testing::AssertionResult apply(const Block& block, const fs::path& file) {
  std::string before, after;
  std::istringstream lines(block.rest);
  for (std::string line; std::getline(lines, line);) {
    const char kind = line.empty() ? ' ' : line[0];
    const std::string text = (line.empty() ? "" : line.substr(1)) + "\n";
    if (kind != '+') before += text;
    if (kind != '-') after += text;
  }
  std::string all = read(file);
  const size_t at = all.find(before);
  if (at == std::string::npos) return testing::AssertionFailure() << file << " has no such lines:\n" << before;
  if (all.find(before, at + 1) != std::string::npos) {
    return testing::AssertionFailure() << file << " has these lines in several places:\n" << before;
  }
  write(file, all.replace(at, before.size(), after));
  return testing::AssertionSuccess();
}

int run(const std::string& command) {
  const int status = std::system(command.c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

std::string quoted(const fs::path& path) { return "'" + path.string() + "'"; }

/// The sources without those of the folders that the library may compile as one: in the place of each such folder, one source
/// that includes all of it. Else the archive would have the functions of the changed file a second time.
std::set<std::string> folders_as_one(const fs::path& copy, const std::set<std::string>& sources) {
  std::set<std::string> result;
  for (const std::string& source : sources) {
    const fs::path folder = fs::path(source).parent_path();
    if (folder == "src/backends/cpu") {
      result.insert(source);
      continue;
    }
    const std::string all = folder.filename().string() + "_as_one.cc";
    if (!result.insert(all).second) continue;
    std::string includes;
    for (const fs::directory_entry& entry : fs::directory_iterator(copy / folder)) {
      if (entry.path().extension() == ".cc") includes += "#include \"" + entry.path().string() + "\"\n";
    }
    write(copy / all, includes);
  }
  return result;
}

TEST(AddingAFormat, ThePageWorksAsItIsWritten) {
  const fs::path copy = fs::path(testing::TempDir()) / ("adding-a-format-" + std::to_string(getpid()));
  fs::create_directories(copy);
  fs::copy(kProject / "include", copy / "include", fs::copy_options::recursive);
  fs::copy(kProject / "src", copy / "src", fs::copy_options::recursive);
  std::set<std::string> sources;
  std::string program;
  for (const Block& block : blocks_of(read(kProject / "docs/adding-a-format.md"))) {
    if (block.language == "diff") {
      ASSERT_TRUE(block.first_line.starts_with("+++ ")) << block.first_line;
      std::string path = block.first_line.substr(4);
      ASSERT_TRUE(apply(block, copy / path));
      if (path.ends_with(".cc")) sources.insert(path);
      // The number of rows is compiled into the plan, too.
      if (path.ends_with("cpu/kernels.inc")) sources.insert("src/backends/cpu/plan.cc");
      // The kind of a format's codes, too.
      if (path.ends_with("code_kind.h")) sources.insert("src/backends/cpu/kernels.cc");
    }
    if (block.language == "cpp") {
      program = block.first_line.substr(3);
      write(copy / program, block.rest);
    }
  }
  ASSERT_FALSE(program.empty());
  ASSERT_GE(sources.size(), 2u);
  sources = folders_as_one(copy, sources);
  sources.insert(program);
  std::string build = MARLIN_COMPILER " -std=c++20 -O1 -pthread -I" + quoted(copy / "include") + " -I" + quoted(copy / "src");
  for (const std::string& source : sources) build += " " + quoted(copy / source);
  build += " '" MARLIN_ARCHIVE "' -o " + quoted(copy / "run") + " 2>" + quoted(copy / "errors");
  EXPECT_EQ(run(build), 0) << read(copy / "errors");
  EXPECT_EQ(run(quoted(copy / "run") + " >" + quoted(copy / "said")), 0) << read(copy / "said");
  fs::remove_all(copy);
}

}  // namespace
