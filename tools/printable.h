// Makes text for terminals and JSON from names in files, which may be any bytes.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace metal_marlin::tools {

/// The whole text as first_printable() shows it (base/printable.h).
std::string printable(std::string_view text);
/// null for an empty text.
nlohmann::ordered_json text_or_null(const std::string& text);
/// Like nlohmann's dump(), but always UTF-8 that a terminal can show: U+FFFD replaces invalid
/// bytes.
std::string json_text(const nlohmann::ordered_json& json, int indent = -1);

}  // namespace metal_marlin::tools
