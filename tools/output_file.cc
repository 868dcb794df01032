#include "output_file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstring>
#include <utility>

#include "command.h"

namespace metal_marlin::tools {
namespace {

const char* kind_of(mode_t mode) {
  return S_ISDIR(mode) ? "folder" : S_ISLNK(mode) ? "symbolic link" : S_ISFIFO(mode) ? "pipe" : "device or socket";
}

}  // namespace

OutputFile::OutputFile(std::string path, bool force, InputFiles inputs)
    : path_(std::move(path)), force_(force), inputs_(std::move(inputs)) {
  if (path_ == "-") throw Failure("cannot write -: expected the name of a file (./- for one that is called so)");
  (void)must_replace();
  create();
}

OutputFile::~OutputFile() {
  file_.reset();
  if (!temporary_.empty()) (void)std::remove(temporary_.c_str());
}

/// Whether a file is there and may go.
bool OutputFile::must_replace() const {
  struct stat found{};
  if (::lstat(path_.c_str(), &found) != 0) {
    if (errno == ENOENT) return false;
    fail("cannot write", errno);
  }
  if (inputs_.has(path_)) throw Failure(fmt::format("cannot write {}: it is part of the input; write to another name", path_));
  if (!S_ISREG(found.st_mode)) {
    throw Failure(
        fmt::format("cannot write {}: expected a new name or a regular file, found a {}", path_, kind_of(found.st_mode)));
  }
  if (!force_) throw Failure(fmt::format("cannot write {}: it is there already (--force replaces it)", path_));
  return true;
}

void OutputFile::create() {
  temporary_ = fmt::format("{}.part-{}", path_, getpid());
  file_.reset(std::fopen(temporary_.c_str(), "wbx"));  // x: never another's file
  if (file_) return;
  const int number = errno;
  temporary_.clear();
  fail("cannot create", number);
}

void OutputFile::write(const void* data, size_t bytes) {
  if (std::fwrite(data, 1, bytes, file_.get()) != bytes) fail("cannot write", errno);
}

/// 0 or an errno. A link fails when the name is taken, unlike a rename; not every disk has links.
int OutputFile::give_name() {
  if (!must_replace()) {
    if (::link(temporary_.c_str(), path_.c_str()) == 0) return 0;  // the destructor takes the other name
    if (errno == EEXIST) return EEXIST;
  }
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) return errno;
  temporary_.clear();
  return 0;
}

void OutputFile::commit() {
  // Buffered bytes may fail to reach the disk as late as here.
  if (std::fflush(file_.get()) != 0 || ::fsync(::fileno(file_.get())) != 0) fail("cannot write", errno);
  if (const int number = give_name(); number != 0) fail("cannot give its name to", number);
}

void OutputFile::fail(const char* doing, int number) const {
  throw Failure(fmt::format("{} {}: {}", doing, path_, std::strerror(number)));
}

void add_force(CLI::App& command, bool& force) { command.add_flag("--force", force, "Replace a file that is there"); }

}  // namespace metal_marlin::tools
