#include "checkpoints/folder.h"

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <map>
#include <optional>
#include <vector>

#include "checkpoints/file_kind.h"
#include "checkpoints/gguf_parts.h"

namespace metal_marlin {
namespace {

// This file does not use std::filesystem, whose iterators allocate in noexcept functions and
// therefore end the process if memory runs out.

class DiskFolder final : public Folder {
 public:
  explicit DiskFolder(const std::string& path) : path_(files::as_folder(path)) {}
  Result<std::span<const std::byte>> open(const std::string& name) override {
    MARLIN_ASSIGN(MappedFile file, MappedFile::open(path_ + name));
    files_.push_back(std::move(file));
    return files_.back().bytes();
  }
  std::vector<std::string> names() const override;
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

constexpr const char* kShard = ".safetensors";
constexpr const char* kEndings[] = {".safetensors.index.json", ".safetensors", ".gguf", ".marlin"};

Result<std::vector<std::string>> names_in(const std::string& path) {
  std::vector<std::string> names;
  if (const int error = files::list(path, names); error != 0)
    return file_error(path, "cannot list the folder", error);
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

std::vector<std::string> DiskFolder::names() const {
  auto names = names_in(path_.empty() ? "." : path_);
  return names.ok() ? names.take() : std::vector<std::string>();
}

/// An error if the files have shards of one set, without an index, and not all of them.
Status check_shards(const std::string& path, const std::vector<std::string>& files) {
  std::optional<GgufPartName> set;
  std::vector<uint64_t> numbers;
  for (const std::string& file : files) {
    const auto shard = parse_gguf_part_name(file, kShard);
    if (!shard) continue;
    if (set && (shard->stem != set->stem || shard->count != set->count)) return {};
    set = shard;
    numbers.push_back(shard->number);
  }
  if (!set || numbers.size() == set->count) return {};
  std::sort(numbers.begin(), numbers.end());
  uint64_t missing = 1;
  for (const uint64_t number : numbers) missing += number == missing;
  return Status::error(MARLIN_E_FILE,
                       "%.80s: expected %" PRIu64
                       " shards or an index, found %zu of them: '%.90s' is missing",
                       path.c_str(), set->count, numbers.size(),
                       gguf_part_name(set->stem, missing, set->count, kShard).c_str())
      .with_native(ENOENT);
}

/// The file to open in a folder.
Result<CheckpointPath> search(const std::string& path) {
  MARLIN_ASSIGN(const std::vector<std::string> names, names_in(path));
  for (const char* ending : kEndings) {
    const std::vector<std::string> files = files_with(names, ending);
    const auto whole = std::find(files.begin(), files.end(), std::string("model") + ending);
    if (whole != files.end()) return CheckpointPath{path, *whole, {}};
    const auto is_split_model = [](const std::string& file) {
      const auto part = parse_gguf_part_name(file);
      return part && part->stem == "model";
    };
    const auto split = std::find_if(files.begin(), files.end(), is_split_model);
    if (split != files.end() && std::find_if(split + 1, files.end(), is_split_model) == files.end())
      return CheckpointPath{path, *split, {}};
  }
  for (const char* ending : kEndings) {
    std::vector<std::string> files = files_with(names, ending);
    std::erase_if(files, [](const std::string& file) { return !file.starts_with("gptq_model-"); });
    // AutoGPTQ writes gptq_model-4bit-128g.safetensors.
    if (files.size() == 1) return CheckpointPath{path, files[0], {}};
  }
  std::vector<std::string> shards = whole_shards(names);
  const bool has_index = !files_with(names, kEndings[0]).empty();
  if (!shards.empty() && !has_index) return CheckpointPath{path, shards[0], shards};
  for (const char* ending : kEndings) {
    const std::vector<std::string> files = files_with(names, ending);
    MARLIN_RETURN_IF_ERROR(check_shards(path, files));
    if (files.size() == 1) return CheckpointPath{path, files[0], {}};
    if (files.size() > 1) {
      return Status::error(MARLIN_E_FILE,
                           "%.150s: expected one file *%s in the folder, found %zu: name one",
                           path.c_str(), ending, files.size())
          .with_native(EINVAL);
    }
  }
  return Status::error(MARLIN_E_FILE,
                       "%.150s: expected a .safetensors, .safetensors.index.json, .gguf or .marlin "
                       "in the folder%s",
                       path.c_str(), other_folder(path, names).c_str())
      .with_native(ENOENT);
}

}  // namespace

std::vector<std::string> whole_shards(const std::vector<std::string>& names) {
  std::map<std::pair<std::string_view, uint64_t>, std::vector<std::string>> sets;
  for (const std::string& name : names) {
    if (const auto shard = parse_gguf_part_name(name, kShard))
      sets[{shard->stem, shard->count}].push_back(name);
  }
  std::vector<std::string>* whole = nullptr;
  for (auto& [key, files] : sets) {
    if (files.size() != key.second) continue;  // each number comes once, because names do
    if (whole != nullptr) return {};
    whole = &files;
  }
  if (whole == nullptr) return {};
  std::sort(whole->begin(), whole->end(), [](const std::string& a, const std::string& b) {
    return std::pair(a.size(), a) < std::pair(b.size(), b);
  });
  return std::move(*whole);
}

std::string note_of_unopened(std::vector<std::string> names, const std::vector<std::string>& opened,
                             const char* why) {
  constexpr size_t kMost = 8;
  std::erase_if(names, [&](const std::string& name) {
    return !name.ends_with(kShard) || std::find(opened.begin(), opened.end(), name) != opened.end();
  });
  std::sort(names.begin(), names.end());
  std::string note;
  for (size_t i = 0; i < std::min(names.size(), kMost); ++i)
    note += (i == 0 ? "not opened: " : ", ") + names[i];
  if (names.size() > kMost) note += " and " + std::to_string(names.size() - kMost) + " more";
  return note.empty() ? note : note + ": " + why;
}

std::unique_ptr<Folder> disk_folder(const std::string& path) {
  return std::make_unique<DiskFolder>(path);
}

Result<CheckpointPath> locate_checkpoint(const std::string& path) {
  files::Facts facts;
  const bool is_there = files::examine(path, facts) == 0;
  if (is_there && facts.is_folder()) {
    MARLIN_ASSIGN(CheckpointPath found, search(path));
    found.is_chosen = true;
    return found;
  }
  if (const std::string why = other_path(path); !why.empty() && !is_there)
    return Status::error(MARLIN_E_FILE, "%.120s: no such file or folder: %s", path.c_str(),
                         why.c_str())
        .with_native(ENOENT);
  return CheckpointPath{files::folder_of(path), files::name_of(path), {}};
}

}  // namespace metal_marlin
