// What `report` leaves out.
#pragma once

#include <string>

namespace metal_marlin::tools {

/// The text with "~" for home folders: $HOME, and those of others under the folders where systems
/// keep them.
std::string without_home_folders(std::string text);

}  // namespace metal_marlin::tools
