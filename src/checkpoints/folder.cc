#include "checkpoints/folder.h"

#include <dirent.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "checkpoints/gguf_parts.h"

namespace metal_marlin {
namespace {

// This file uses POSIX and not std::filesystem, whose iterators allocate in noexcept functions and
// therefore end the process if memory runs out.

class DiskFolder final : public Folder {
 public:
  explicit DiskFolder(const std::string& path)
      : path_(path.empty() || path.ends_with('/') ? path : path + '/') {}
  Result<std::span<const std::byte>> open(const std::string& name) override {
    MARLIN_ASSIGN(MappedFile file, MappedFile::open(path_ + name));
    files_.push_back(std::move(file));
    return files_.back().bytes();
  }
  void release(std::span<const std::byte> part) const override { MappedFile::release_pages(part); }
  std::string path() const override { return path_; }
  bool has_opened(const FileId& file) const override {
    return std::any_of(files_.begin(), files_.end(),
                       [&](const MappedFile& opened) { return opened.id() == file; });
  }

 private:
  std::string path_;
  std::vector<MappedFile> files_;
};

constexpr const char* kEndings[] = {".safetensors.index.json", ".safetensors", ".gguf", ".marlin"};

struct CloseFolder {
  void operator()(DIR* folder) const { ::closedir(folder); }
};

Result<std::vector<std::string>> names_in(const std::string& path) {
  const std::unique_ptr<DIR, CloseFolder> folder(::opendir(path.c_str()));
  if (folder == nullptr) return file_error(path, "cannot list the folder", errno);
  std::vector<std::string> names;
  for (;;) {
    errno = 0;
    const dirent* entry = ::readdir(folder.get());  // thread-safe: no other thread has this DIR
    if (entry == nullptr) break;
    names.emplace_back(entry->d_name);
  }
  if (errno != 0) return file_error(path, "cannot list the folder", errno);
  return names;
}

/// The files of a folder that have this ending, each once. The first part of a split GGUF stands
/// for all its parts.
std::vector<std::string> files_with(const std::vector<std::string>& names, const char* ending) {
  std::vector<std::string> files;
  for (const std::string& name : names) {
    if (!name.ends_with(ending)) continue;
    const auto part = parse_gguf_part_name(name);
    files.push_back(part ? gguf_part_name(part->stem, 1, part->count) : name);
  }
  std::sort(files.begin(), files.end());
  files.erase(std::unique(files.begin(), files.end()), files.end());
  return files;
}

/// The file to open in a folder.
Result<std::string> search(const std::string& path) {
  MARLIN_ASSIGN(const std::vector<std::string> names, names_in(path));
  for (const char* ending : kEndings) {
    const std::vector<std::string> files = files_with(names, ending);
    const auto whole = std::find(files.begin(), files.end(), std::string("model") + ending);
    if (whole != files.end()) return *whole;
    const auto is_split_model = [](const std::string& file) {
      const auto part = parse_gguf_part_name(file);
      return part && part->stem == "model";
    };
    const auto split = std::find_if(files.begin(), files.end(), is_split_model);
    if (split != files.end() && std::find_if(split + 1, files.end(), is_split_model) == files.end())
      return *split;
  }
  for (const char* ending : kEndings) {
    std::vector<std::string> files = files_with(names, ending);
    std::erase_if(files, [](const std::string& file) { return !file.starts_with("gptq_model-"); });
    if (files.size() == 1) return files[0];  // of AutoGPTQ: gptq_model-4bit-128g.safetensors
  }
  for (const char* ending : kEndings) {
    const std::vector<std::string> files = files_with(names, ending);
    if (files.size() == 1) return files[0];
    if (files.size() > 1) {
      return Status::error(MARLIN_E_FILE,
                           "%.150s: expected one file *%s in the folder, found %zu: name one",
                           path.c_str(), ending, files.size())
          .with_native(EINVAL);
    }
  }
  return Status::error(MARLIN_E_FILE,
                       "%.150s: expected a .safetensors, .safetensors.index.json, .gguf or .marlin "
                       "in the folder",
                       path.c_str())
      .with_native(ENOENT);
}

}  // namespace

std::unique_ptr<Folder> disk_folder(const std::string& path) {
  return std::make_unique<DiskFolder>(path);
}

Result<CheckpointPath> locate_checkpoint(const std::string& path) {
  struct stat info{};
  if (::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) {
    MARLIN_ASSIGN(std::string file, search(path));
    return CheckpointPath{path, std::move(file)};
  }
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return CheckpointPath{"", path};
  return CheckpointPath{path.substr(0, slash + 1), path.substr(slash + 1)};
}

}  // namespace metal_marlin
