// Runs the command as a shell would, with its output in files: never a terminal.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace metal_marlin::test {

struct Ran {
  int exit_code;  ///< 128 + signal when it did not exit
  std::string out, err;
};

struct RunOptions {
  std::string program = {};  ///< a copy of the command; empty: the command itself
  std::string out = {};      ///< where standard output goes; empty: a file that Ran::out holds
  std::string err = {};      ///< likewise standard error
  uint64_t file_limit = 0;   ///< bytes that a file may grow to; 0: no limit
  int signal = 0;            ///< sent after signal_ms
  int signal_ms = 0;
};
/// The arguments are passed as they are.
Ran run_command(const std::vector<std::string>& arguments, const RunOptions& options = {});

/// A folder of its own, removed with all it holds.
class ScratchFolder {
 public:
  ScratchFolder();
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  std::string at(const std::string& name) const { return (path_ / name).string(); }
  size_t entries() const;

 private:
  std::filesystem::path path_;
};

std::string read_file(const std::string& path);
void write_file(const std::string& path, const std::string& content);
/// tests/data/NAME
std::string data(const std::string& name);

}  // namespace metal_marlin::test
