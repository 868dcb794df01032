// The folder of a converted checkpoint.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "checkpoints/checkpoint.h"
#include "checkpoints/convert/convert_plan.h"

namespace metal_marlin {

class OutputFolder {
 public:
  /// A path that ends in .gguf or .safetensors names the file. Any other path names the folder for
  /// model.gguf or model.safetensors. Changes nothing on the disk.
  static Result<OutputFolder> find(const std::string& path, bool gguf);
  OutputFolder(OutputFolder&& other) noexcept;
  OutputFolder& operator=(OutputFolder&&) = delete;
  /// Removes the folder if this object made it and keep() was not called.
  ~OutputFolder();

  const std::string& path() const {
    return path_;
  }  ///< with a slash at its end, or "" for the current one
  const std::string& file() const { return file_; }

  /// Checks that every file of the plan may be written: none was read as input, none is a link or a
  /// folder, none exists unless it may be replaced, and no other file would become part of the
  /// model.
  Status check(const Checkpoint& input, const ConvertPlan& plan, bool overwrite) const;
  /// Makes the folder if it does not exist (but not its parents).
  Status make();
  void keep() { made_ = false; }

 private:
  OutputFolder() = default;
  Status check_file(const Checkpoint& input, const std::string& name, bool overwrite) const;
  Status check_side_files(const Checkpoint& input, const ConvertPlan& plan) const;
  Status check_neighbors(const ConvertPlan& plan) const;

  std::string path_, file_;
  bool is_new_ = false, made_ = false;
};

}  // namespace metal_marlin
