#include "checkpoints/folder.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <vector>

#include "checkpoints/mapped_file.h"

namespace metal_marlin {
namespace {

namespace fs = std::filesystem;

class DiskFolder final : public Folder {
 public:
  explicit DiskFolder(const std::string& path) : path_(path) {}
  Result<std::span<const std::byte>> open(const std::string& name) override {
    MARLIN_ASSIGN(MappedFile file, MappedFile::open((path_ / name).string()));
    files_.push_back(std::move(file));
    return files_.back().bytes();
  }
  void release(std::span<const std::byte> part) const override { MappedFile::release_pages(part); }

 private:
  fs::path path_;
  std::vector<MappedFile> files_;
};

constexpr const char* kEndings[] = {".safetensors.index.json", ".safetensors", ".gguf"};

/// The file to open in a folder.
Result<std::string> search(const std::string& path) {
  std::error_code error;
  std::vector<std::string> names;
  for (fs::directory_iterator it(path, error), end; !error && it != end; it.increment(error)) {
    names.push_back(it->path().filename().string());
  }
  if (error) {
    return Status::error(MARLIN_E_FILE, "%.150s: cannot list the folder: %s", path.c_str(), error.message().c_str())
        .with_native(error.value());
  }
  for (const char* ending : kEndings) {
    if (std::find(names.begin(), names.end(), std::string("model") + ending) != names.end()) {
      return std::string("model") + ending;
    }
  }
  for (const char* ending : kEndings) {
    const auto fits = [&](const std::string& name) { return name.ends_with(ending); };
    const auto count = std::count_if(names.begin(), names.end(), fits);
    if (count == 1) return *std::find_if(names.begin(), names.end(), fits);
    if (count > 1) {
      return Status::error(MARLIN_E_FILE, "%.150s: expected one file *%s in the folder, found %td: name one", path.c_str(),
                           ending, count)
          .with_native(EINVAL);
    }
  }
  return Status::error(MARLIN_E_FILE, "%.150s: expected a .safetensors, .safetensors.index.json or .gguf in the folder",
                       path.c_str())
      .with_native(ENOENT);
}

}  // namespace

std::unique_ptr<Folder> disk_folder(const std::string& path) { return std::make_unique<DiskFolder>(path); }

Result<CheckpointPath> locate_checkpoint(const std::string& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) {
    MARLIN_ASSIGN(std::string file, search(path));
    return CheckpointPath{path, std::move(file)};
  }
  const fs::path whole(path);
  return CheckpointPath{whole.parent_path().string(), whole.filename().string()};
}

}  // namespace metal_marlin
