// The command's arguments, one a line: they are parsed, and nothing of what they ask for is done.
#include <iostream>
#include <string>
#include <vector>

#include "fuzz/target.h"
#include "tools/command_line.h"

MARLIN_FUZZ_TARGET(arguments) {
  using namespace metal_marlin::fuzz;
  using namespace metal_marlin::tools;
  std::vector<std::string> words = {"metal-marlin", ""};
  for (const uint8_t byte : input) {
    if (byte == '\n' && words.size() < 40)
      words.emplace_back();
    else if (byte != 0)
      words.back().push_back(static_cast<char>(byte));
  }
  std::vector<const char*> arguments;
  for (const std::string& word : words) arguments.push_back(word.c_str());
  std::streambuf *const out = std::cout.rdbuf(nullptr), *const err = std::cerr.rdbuf(nullptr);
  static CommandLine line;  // describing the commands takes longer than most lines take to parse
  try {
    (void)line.parse(static_cast<int>(arguments.size()), arguments.data());
  } catch (const Failure& e) {
    expect(e.what()[0] != '\0', "a failure has a message");
  }
  std::cout.rdbuf(out);
  std::cerr.rdbuf(err);
}
