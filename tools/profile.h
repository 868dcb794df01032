// The profile of a device: where it lies, and how much is in it.
#pragma once

#include <string>

#include "library.h"

namespace metal_marlin::tools {

struct ProfileInfo {
  std::string path;      ///< empty: none is kept
  std::string products;  ///< how many classes of products it has, as text
};
/// Of the device of a context.
ProfileInfo profile_of(marlin_context* context);

}  // namespace metal_marlin::tools
