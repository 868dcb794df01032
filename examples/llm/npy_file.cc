#include "npy_file.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <utility>

namespace llm {
namespace {

namespace fs = std::filesystem;

// Under whatever names. A model is a file or a folder of files.
bool is_input(const fs::path& path, const fs::path& input) {
  std::error_code none;
  if (!fs::is_directory(input, none)) return fs::equivalent(path, input, none);
  for (fs::directory_iterator entry(input, none), end; !none && entry != end;
       entry.increment(none)) {
    std::error_code other;
    if (fs::equivalent(path, entry->path(), other)) return true;
  }
  return false;
}

// Magic, version 1.0, and a description padded to a multiple of 64 bytes.
std::string head(size_t rows, int64_t columns) {
  std::string text = "{'descr': '<f4', 'fortran_order': False, 'shape': (" + std::to_string(rows) +
                     ", " + std::to_string(columns) + "), }";
  text.resize((10 + text.size() + 1 + 63) / 64 * 64 - 10 - 1, ' ');
  text += '\n';
  const auto size = static_cast<uint16_t>(text.size());
  return std::string("\x93NUMPY\x01\x00", 8) + static_cast<char>(size & 0xFF) +
         static_cast<char>(size >> 8) + text;
}

}  // namespace

NpyFile::NpyFile(std::string path, bool force, std::vector<std::string> inputs)
    : path_(std::move(path)), force_(force), inputs_(std::move(inputs)) {
  (void)must_replace();
  const std::string temporary = path_ + ".part-" + std::to_string(getpid());
  file_.reset(std::fopen(temporary.c_str(), "wbx"));  // x: never another's file
  if (!file_) refuse(std::strerror(errno));
  temporary_ = temporary;
}

NpyFile::~NpyFile() {
  file_.reset();
  if (!temporary_.empty()) (void)std::remove(temporary_.c_str());
}

// Whether a file is there and may go.
bool NpyFile::must_replace() const {
  std::error_code none;
  const fs::file_status found = fs::symlink_status(path_, none);
  if (found.type() == fs::file_type::not_found) return false;
  if (std::any_of(inputs_.begin(), inputs_.end(),
                  [&](const std::string& input) { return is_input(path_, input); })) {
    refuse("it is part of the input");
  }
  if (found.type() != fs::file_type::regular) refuse("expected a new name or a regular file");
  if (!force_) refuse("it is there already (--force replaces it)");
  return true;
}

void NpyFile::begin(size_t rows, int64_t columns) {
  const std::string text = head(rows, columns);
  put(text.data(), text.size());
}

void NpyFile::write(std::span<const float> values) { put(values.data(), values.size_bytes()); }

void NpyFile::put(const void* data, size_t bytes) {
  if (std::fwrite(data, 1, bytes, file_.get()) != bytes) refuse(std::strerror(errno));
}

void NpyFile::commit() {
  if (std::fflush(file_.get()) != 0) refuse(std::strerror(errno));
  if (!must_replace()) {  // a link fails when somebody took the name meanwhile, unlike a rename;
                          // not every disk has links
    if (link(temporary_.c_str(), path_.c_str()) == 0) return;
    if (errno == EEXIST) refuse(std::strerror(errno));
  }
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) refuse(std::strerror(errno));
  temporary_.clear();
}

void NpyFile::refuse(const std::string& why) const {
  throw std::runtime_error(path_ + ": cannot be written: " + why);
}

}  // namespace llm
