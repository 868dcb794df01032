// A folder of a test's own, which is gone with it.
#pragma once

#include <filesystem>
#include <random>
#include <string>
#include <system_error>

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::random_device random;
    std::error_code error;
    for (bool made = false; !made && !error;) {
      path_ = (std::filesystem::temp_directory_path() / ("metal-marlin-" + std::to_string(random()) + std::to_string(random())))
                  .string();
      made = std::filesystem::create_directory(path_, error);
    }
    if (error) path_.clear();
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};
