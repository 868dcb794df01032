#include "output_file.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <random>
#include <utility>

#include "command.h"
#include "platform.h"

namespace metal_marlin::tools {
namespace {

namespace fs = std::filesystem;

const char* kind_of(fs::file_type type) {
  return type == fs::file_type::directory ? "folder"
         : type == fs::file_type::symlink ? "symbolic link"
         : type == fs::file_type::fifo    ? "pipe"
                                          : "device or socket";
}

std::string temporary_name(const std::string& path) {
  std::random_device random;
  return fmt::format("{}.part-{:08x}{:08x}", path, random(), random());
}

}  // namespace

void check_output_name(const std::string& path) {
  if (path == "-")
    throw Failure("cannot write -: expected the name of a file (./- for one that is called so)");
}

OutputFile::OutputFile(std::string path, bool force, InputFiles inputs, bool nameless)
    : path_(std::move(path)), force_(force), inputs_(std::move(inputs)) {
  check_output_name(path_);
  (void)must_replace();
  create(nameless);
}

OutputFile::~OutputFile() {
  file_.reset();
  if (!temporary_.empty()) (void)std::remove(temporary_.c_str());
}

/// Whether a file exists and may be replaced.
bool OutputFile::must_replace() const {
  std::error_code error;
  const fs::file_type found = fs::symlink_status(path_, error).type();
  if (found == fs::file_type::not_found) return false;
  if (error) fail("cannot write", error.default_error_condition().value());
  if (inputs_.has(path_))
    throw Failure(
        fmt::format("cannot write {}: it is part of the input; write to another name", path_));
  if (found != fs::file_type::regular) {
    throw Failure(fmt::format("cannot write {}: expected a new name or a regular file, found a {}",
                              path_, kind_of(found)));
  }
  if (!force_)
    throw Failure(fmt::format("cannot write {}: it is there already (--force replaces it)", path_));
  return true;
}

void OutputFile::create(bool nameless) {
  if (nameless) file_.reset(open_nameless(path_));
  if (file_) return;
  const std::string temporary = temporary_name(path_);
  file_.reset(std::fopen(temporary.c_str(), "wbx"));  // x: never another's file
  if (!file_) fail("cannot create", errno);
  temporary_ = temporary;
}

void OutputFile::write(const void* data, size_t bytes) {
  if (std::fwrite(data, 1, bytes, file_.get()) != bytes) fail("cannot write", errno);
}

/// Returns 0 or an errno. A file that replaces another needs a name that it can swap.
int OutputFile::claim_temporary_name() {
  const std::string temporary = temporary_name(path_);
  if (const int number = link_nameless(file_.get(), temporary); number != 0) return number;
  temporary_ = temporary;
  return 0;
}

/// Returns 0 or an errno. Unlike a rename, a link fails if the name is taken. Not every disk has
/// links.
int OutputFile::give_name() {
  if (!must_replace()) {
    const int number =
        temporary_.empty() ? link_nameless(file_.get(), path_) : link_file(temporary_, path_);
    if (number == 0 || number == EEXIST || temporary_.empty())
      return number;  // the destructor takes the other name
  }
  if (temporary_.empty()) {
    if (const int number = claim_temporary_name(); number != 0) return number;
  }
  if (const int number = rename_file(temporary_, path_); number != 0) return number;
  temporary_.clear();
  return 0;
}

void OutputFile::commit() {
  // Buffered bytes may fail to reach the disk as late as here.
  if (std::fflush(file_.get()) != 0) fail("cannot write", errno);
  if (const int number = sync_file(file_.get()); number != 0) fail("cannot write", number);
  if (!temporary_.empty()) file_.reset();  // Windows renames no file that is open
  if (const int number = give_name(); number != 0) fail("cannot give its name to", number);
}

void OutputFile::fail(const char* doing, int number) const {
  throw Failure(fmt::format("{} {}: {}", doing, path_, std::strerror(number)));
}

void add_output(CLI::App& command, std::string& path) {
  command.add_option("-o,--output", path, "The file to write")->type_name("FILE")->required();
}

void add_force(CLI::App& command, bool& force) {
  command.add_flag("--force", force, "Replace a file that is there");
}

}  // namespace metal_marlin::tools
