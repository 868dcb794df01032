#include "cache.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <vector>

#include "../beside.h"
#include "clang.h"

namespace metal_on_cpu {

namespace fs = std::filesystem;

std::string digest(const std::string& text) {
  std::ostringstream out;
  for (uint64_t h : {0xcbf29ce484222325ull, 0x84222325cbf29ce4ull}) {
    for (const unsigned char c : text) h = (h ^ c) * 0x100000001b3ull;
    out << std::hex << (h ^ (h >> 29)) << '-';
  }
  std::string s = out.str();
  s.pop_back();
  return s;
}

std::string read_file(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

const std::string& prelude_digest() {
  static const std::string value = [] {
    std::string all;
    std::error_code ignored;  // without the files clang says what is missing
    for (const char* folder : {"/msl", "/check"}) {
      std::vector<fs::path> files;
      for (const auto& entry : fs::directory_iterator(prelude_path() + folder, ignored)) files.push_back(entry.path());
      std::sort(files.begin(), files.end());
      for (const fs::path& file : files) all += read_file(file);
    }
    // Images may outlive the compiler that made them.
    return digest(all + METAL_ON_CPU_BUILD + clang({"--version"}, {}).output);
  }();
  return value;
}

Result<fs::path> cache_folder(const CompileOptions& options) {
  const char* from_environment = std::getenv("METAL_ON_CPU_CACHE");
  std::error_code failed;
  fs::path folder = options.cache;
  if (folder.empty() && from_environment) folder = from_environment;
  if (folder.empty()) folder = fs::temp_directory_path(failed) / ("metal-on-cpu-" + std::to_string(getuid()));
  fs::create_directories(folder, failed);
  if (failed) return Error{folder.string() + ": cannot make this folder for images: " + failed.message()};
  return folder;
}

fs::path temporary_name(const fs::path& name) {
  static std::atomic<uint64_t> count{0};
  return name.string() + "." + std::to_string(getpid()) + "." + std::to_string(count++);
}

bool publish(const fs::path& temporary, const fs::path& final_name) {
  std::error_code failed;
  fs::rename(temporary, final_name, failed);
  return !failed;
}

namespace {
constexpr size_t kLengthDigits = 16;
}

bool add_length(const fs::path& path) {
  std::error_code failed;
  std::string digits = std::to_string(fs::file_size(path, failed));
  digits.insert(0, kLengthDigits - digits.size(), '0');
  return !failed && (std::ofstream(path, std::ios::binary | std::ios::app) << digits).flush();
}

bool has_its_length(const fs::path& path) {
  std::error_code failed;
  const uintmax_t size = fs::file_size(path, failed);
  if (failed || size < kLengthDigits) return false;
  std::string digits(kLengthDigits, '\0');
  std::ifstream in(path, std::ios::binary);
  in.seekg(static_cast<std::streamoff>(size - kLengthDigits));
  in.read(digits.data(), kLengthDigits);
  return in && std::strtoull(digits.c_str(), nullptr, 10) == size - kLengthDigits;
}

bool write_file(const fs::path& path, const std::string& text) {
  const fs::path temporary = temporary_name(path);
  std::ofstream(temporary, std::ios::binary) << text;
  return publish(temporary, path);
}

}  // namespace metal_on_cpu
