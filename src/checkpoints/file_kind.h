// What a file is that is no checkpoint, by its first bytes: for messages.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace metal_marlin {

/// What a file is that is neither safetensors nor GGUF, and what to do: "a Git LFS pointer: run git
/// lfs pull". "" if the bytes tell nothing.
std::string other_kind(std::span<const std::byte> bytes);

/// An error if a file that should be JSON is known to be something else.
Status expect_json(std::string_view file, std::string_view text);

/// What a folder without a checkpoint has in its place, from the names in it: "; found pickles
/// (pytorch_model.bin), which are not read". "" if they tell nothing.
std::string other_folder(const std::string& path, const std::vector<std::string>& names);

/// Why there may be no file of this name: it is an address or the name of a model on a hub. "" if
/// it looks like neither.
std::string other_path(std::string_view path);

}  // namespace metal_marlin
