// Names from files, which may be any bytes, as text for terminals and as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace metal_marlin::tools {

bool is_utf8(std::string_view text);
/// Nothing in the result can steer a terminal or forge a line: it is UTF-8, with \x1b in place of
/// bytes that are none and of control characters below U+0020, and \u202e in place of other
/// controls and of what turns or breaks lines of text.
std::string printable(std::string_view text);
/// As nlohmann's dump(), and always UTF-8 that a terminal can show: U+FFFD stands for bytes that
/// are none.
std::string json_text(const nlohmann::ordered_json& json, int indent = -1);

}  // namespace metal_marlin::tools
