// A file that a person named, and that a command writes: whole or not at all, and never onto
// anything that must stay.
#pragma once

#include <cstddef>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

#include "input_files.h"

namespace CLI {
class App;
}

namespace metal_marlin::tools {

/// The file appears under its name, complete, at commit(). Before that it has no name at all where
/// the system can do that (O_TMPFILE), so that not even a killed process leaves anything behind;
/// elsewhere it has a temporary name beside the final one, which the destructor removes. What is
/// there stays: a regular file unless `force` says otherwise, an input under any name always, and
/// so does what is no regular file (a link, a folder, a pipe, a device). Members throw Failure.
class OutputFile {
 public:
  /// Refuses at once, before the work, what commit() would refuse. `nameless`: false to do as where
  /// no file can be without a name.
  explicit OutputFile(std::string path, bool force = false, InputFiles inputs = {},
                      bool nameless = true);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void write(const void* data, size_t bytes);
  void write(std::string_view text) { write(text.data(), text.size()); }
  void commit();
  const std::string& path() const { return path_; }

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  [[noreturn]] void fail(const char* doing, int number) const;
  bool must_replace() const;
  void create(bool nameless);
  int claim_temporary_name();
  int give_name();

  std::string path_, temporary_;  // temporary_ is "" while the file has no name
  bool force_;
  InputFiles inputs_;
  std::unique_ptr<std::FILE, Close> file_;
};

/// The flag --force of a command that writes with this class.
void add_force(CLI::App& command, bool& force);

}  // namespace metal_marlin::tools
