// An output file that a person named. It is written completely or not at all, and it never replaces
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

/// Failure for "-": standard output is no file.
void check_output_name(const std::string& path);

/// The file appears under its name, complete, at commit(). If the system supports it (O_TMPFILE),
/// the file has no name before that, so that not even a killed process leaves a file behind.
/// Otherwise it has a temporary name beside the final one, and the destructor removes it. An
/// existing regular file is replaced only with `force`. An input is never replaced, under any name,
/// and neither is anything but a regular file (a link, a folder, a pipe, a device). Members throw
/// Failure.
class OutputFile {
 public:
  /// Throws at once, before any work, if commit() would refuse. With `nameless` false, it behaves
  /// as on systems that do not support files without a name.
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

/// The option -o of a command that has to be told which one file to write.
void add_output(CLI::App& command, std::string& path);
/// The flag --force of a command that writes with this class.
void add_force(CLI::App& command, bool& force);

}  // namespace metal_marlin::tools
