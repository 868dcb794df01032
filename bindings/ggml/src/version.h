// Which versions of ggml this library fits.
#pragma once

namespace marlin_ggml {

/// Whether the ggml that the program has loaded is one whose structs ggml_interface.h describes.
/// Otherwise a line in the log says what was expected and what was found.
bool fits_this_ggml();

}  // namespace marlin_ggml
