// The text of one kernel: macros that leave the other kernels of its file out, before the file.
// Compiling a whole file takes ten times as long and more, and refuses all for the mistake of one.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "device/device.h"

namespace metal_marlin::metal {

/// What lies between the separators.
std::vector<std::string_view> words_of(std::string_view text, char separator);

/// What ShaderFile::kernels has for the file of a kernel.
std::string_view family_of(std::string_view kernel);

/// Lines of #define for a kernel whose name is of the grammar of shaders/common/arguments.h, and
/// for the constants that a part of its text depends on; empty for kernels of small files.
std::string macros_of(std::string_view kernel, std::span<const device::Constant> constants);

}  // namespace metal_marlin::metal
