// Removes private parts of the output of `report`.
#pragma once

#include <string>

namespace metal_marlin::tools {

/// The text with "~" in place of home folders: $HOME, and other folders in the usual places of home
/// folders.
std::string without_home_folders(std::string text);

}  // namespace metal_marlin::tools
