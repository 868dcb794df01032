#include "checkpoints/convert/output_folder.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "checkpoints/convert/output_file.h"
#include "checkpoints/mapped_file.h"

namespace metal_marlin {
namespace {

bool is_same_file(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

}  // namespace

Result<OutputFolder> OutputFolder::find(const std::string& path, bool gguf) {
  if (path.find('\0') != std::string::npos || path.empty())
    return file_error(path, "no name of a file or folder", EINVAL);
  OutputFolder folder;
  struct stat info{};
  const bool there = ::stat(path.c_str(), &info) == 0;
  if (!there && errno != ENOENT) return file_error(path, "cannot examine", errno);
  const char* ending = gguf ? ".gguf" : ".safetensors";
  const bool names_file = path.ends_with(".gguf") || path.ends_with(".safetensors");
  if (names_file && (!there || !S_ISDIR(info.st_mode))) {
    if (!path.ends_with(ending)) {
      return Status::error(MARLIN_E_ARGUMENT,
                           "%.150s: expected a folder or a name in %s for this scheme",
                           path.c_str(), ending);
    }
    const size_t slash = path.rfind('/');
    folder.path_ = slash == std::string::npos ? "" : path.substr(0, slash + 1);
    folder.file_ = slash == std::string::npos ? path : path.substr(slash + 1);
    return folder;
  }
  if (there && !S_ISDIR(info.st_mode))
    return file_error(path, "expected a folder, or a name in .gguf or .safetensors", ENOTDIR);
  folder.path_ = path.ends_with('/') ? path : path + '/';
  folder.file_ = std::string("model") + ending;
  folder.is_new_ = !there;
  return folder;
}

OutputFolder::OutputFolder(OutputFolder&& other) noexcept
    : path_(std::move(other.path_)),
      file_(std::move(other.file_)),
      is_new_(other.is_new_),
      made_(std::exchange(other.made_, false)) {}

OutputFolder::~OutputFolder() {
  if (made_) ::rmdir(path_.c_str());  // fails, as it should, if the folder is not empty
}

Status OutputFolder::make() {
  if (!is_new_) return {};
  if (::mkdir(path_.c_str(), 0777) != 0) return file_error(path_, "cannot make the folder", errno);
  made_ = true;
  return {};
}

Status OutputFolder::check_file(const Checkpoint& input, const std::string& name,
                                bool overwrite) const {
  const std::string path = path_ + name;
  struct stat found{};  // follows links
  if (::stat(path.c_str(), &found) == 0 &&
      input.has_read({static_cast<uint64_t>(found.st_dev), static_cast<uint64_t>(found.st_ino)})) {
    return Status::error(MARLIN_E_ARGUMENT, "%.150s: is part of the input; write to another name",
                         path.c_str());
  }
  MARLIN_ASSIGN(const bool taken, is_taken(path));
  return overwrite || !taken ? Status()
                             : file_error(path, "is there already and may not be replaced", EEXIST);
}

/// config.json describes every safetensors file of its folder.
Status OutputFolder::check_side_files(const Checkpoint& input, const ConvertPlan& plan) const {
  if (plan.side_files.empty() || input.origin().is_gguf) return {};
  const auto or_here = [](const std::string& folder) {
    return folder.empty() ? std::string(".") : folder;
  };
  struct stat ours{}, theirs{};
  if (::stat(or_here(path_).c_str(), &ours) != 0 ||
      ::stat(or_here(input.origin().folder).c_str(), &theirs) != 0)
    return {};
  if (!is_same_file(ours, theirs)) return {};
  return Status::error(MARLIN_E_ARGUMENT,
                       "%.150s: holds the input, which the new config.json would describe wrongly; "
                       "write to another folder",
                       or_here(path_).c_str());
}

/// A reader of the folder would take these for the model, or for a part of it.
Status OutputFolder::check_neighbors(const ConvertPlan& plan) const {
  for (const char* name :
       {"model.safetensors.index.json", "model.safetensors", "quantize_config.json"}) {
    const auto is_it = [&](const auto& file) { return file.name == name; };
    if (std::any_of(plan.files.begin(), plan.files.end(), is_it)) continue;
    if (std::any_of(plan.side_files.begin(), plan.side_files.end(), is_it)) continue;
    if (::access((path_ + name).c_str(), F_OK) == 0) {
      return file_error(path_ + name,
                        "the folder holds another model's file, which this one would be taken for",
                        EEXIST);
    }
  }
  return {};
}

Status OutputFolder::check(const Checkpoint& input, const ConvertPlan& plan, bool overwrite) const {
  MARLIN_RETURN_IF_ERROR(check_side_files(input, plan));
  for (const PlannedFile& file : plan.files)
    MARLIN_RETURN_IF_ERROR(check_file(input, file.name, overwrite));
  for (const SideFile& file : plan.side_files)
    MARLIN_RETURN_IF_ERROR(check_file(input, file.name, overwrite));
  return plan.scheme->gguf || file_ != "model.safetensors" ? Status() : check_neighbors(plan);
}

}  // namespace metal_marlin
