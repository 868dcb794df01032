// Makes text for terminals from names in files, which may be any bytes.
#pragma once

#include <string>
#include <string_view>

namespace metal_marlin::tools {

/// The whole text as first_printable() shows it (base/printable.h), but for newlines that are kept.
std::string printable(std::string_view text, bool keep_newlines = false);

}  // namespace metal_marlin::tools
