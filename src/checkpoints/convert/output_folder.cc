#include "checkpoints/convert/output_folder.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "checkpoints/convert/output_file.h"
#include "checkpoints/mapped_file.h"

namespace metal_marlin {

Result<OutputFolder> OutputFolder::find(const std::string& path, bool gguf) {
  if (path.find('\0') != std::string::npos || path.empty())
    return file_error(path, "no name of a file or folder", EINVAL);
  OutputFolder folder;
  files::Facts found;
  const int error = files::examine(path, found);
  const bool there = error == 0;
  if (!there && error != ENOENT) return file_error(path, "cannot examine", error);
  const char* ending = gguf ? ".gguf" : ".safetensors";
  const bool names_file = path.ends_with(".gguf") || path.ends_with(".safetensors");
  if (names_file && (!there || !found.is_folder())) {
    if (!path.ends_with(ending)) {
      return Status::error(MARLIN_E_ARGUMENT,
                           "%.150s: expected a folder or a name in %s for this scheme",
                           path.c_str(), ending);
    }
    folder.path_ = files::folder_of(path);
    folder.file_ = files::name_of(path);
    return folder;
  }
  if (there && !found.is_folder())
    return file_error(path, "expected a folder, or a name in .gguf or .safetensors", ENOTDIR);
  folder.path_ = files::as_folder(path);
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
  if (made_) (void)files::remove_folder(path_);  // fails, as it should, if the folder is not empty
}

Status OutputFolder::make() {
  if (!is_new_) return {};
  if (const int error = files::make_folder(path_, true); error != 0)
    return file_error(path_, "cannot make the folder", error);
  made_ = true;
  return {};
}

Status OutputFolder::check_file(const Checkpoint& input, const std::string& name,
                                bool overwrite) const {
  const std::string path = path_ + name;
  files::Facts found;
  if (files::examine(path, found) == 0 && input.has_read(found.id)) {
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
  files::Facts ours, theirs;
  if (files::examine(or_here(path_), ours) != 0 ||
      files::examine(or_here(input.origin().folder), theirs) != 0)
    return {};
  if (ours.id != theirs.id) return {};
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
    if (files::exists(path_ + name)) {
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
