// A file that lives as long as the object.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

namespace metal_framework {

class TemporaryFile {
 public:
  explicit TemporaryFile(std::string_view contents) : path_(std::filesystem::temp_directory_path() / "libraryXXXXXX.metallib") {
    const int file = mkstemps(path_.data(), 9);
    if (file < 0) return;
    for (size_t done = 0; done < contents.size();) {
      const ssize_t written = write(file, contents.data() + done, contents.size() - done);
      if (written <= 0) break;
      done += static_cast<size_t>(written);
    }
    close(file);
  }
  ~TemporaryFile() { unlink(path_.c_str()); }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  static std::shared_ptr<TemporaryFile> holding(std::string_view contents) { return std::make_shared<TemporaryFile>(contents); }

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace metal_framework
