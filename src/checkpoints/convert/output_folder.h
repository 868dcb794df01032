// Where a converted checkpoint goes.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "checkpoints/checkpoint.h"
#include "checkpoints/convert/convert_plan.h"

namespace metal_marlin {

class OutputFolder {
 public:
  /// A path that ends in .gguf or .safetensors names the file, any other the folder for model.gguf
  /// or model.safetensors. Touches nothing.
  static Result<OutputFolder> find(const std::string& path, bool gguf);
  OutputFolder(OutputFolder&& other) noexcept;
  OutputFolder& operator=(OutputFolder&&) = delete;
  /// Removes the folder when this made it and nobody called keep().
  ~OutputFolder();

  const std::string& path() const {
    return path_;
  }  ///< with a slash at its end, or "" for the current one
  const std::string& file() const { return file_; }

  /// That every file of the plan may be written: none was read as input, none is a link or a
  /// folder, none is there unless it may be replaced, and no file that is not written would take
  /// part in the model.
  Status check(const Checkpoint& input, const ConvertPlan& plan, bool overwrite) const;
  /// Makes the folder when there is none (not its parents).
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
