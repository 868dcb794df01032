// The file that stands in for a .metallib, whose machine code cannot run here: a first line, then the source.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace metal_framework {

inline constexpr std::string_view kLibraryMark = "metal-on-cpu library 1\n";

inline std::string wrap_source(const std::string& source) { return std::string(kLibraryMark) + source; }

inline std::optional<std::string> unwrap_source(std::string_view data) {
  if (!data.starts_with(kLibraryMark)) return std::nullopt;
  return std::string(data.substr(kLibraryMark.size()));
}

}  // namespace metal_framework
