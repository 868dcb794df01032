// clang's messages, brought back to the shader's own lines.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "token.h"

namespace metal_on_cpu {

struct ClangMessage {
  std::string file;
  uint32_t line = 0;
  std::string severity;  // "error", "fatal error", "warning", "note"
  std::string text;
};

std::vector<ClangMessage> parse_messages(const std::string& output);
/// Errors; one inside our headers is placed where the shader caused it, as the notes behind it say.
std::vector<Diagnostic> shader_errors(const std::vector<ClangMessage>& messages);
/// Of a syntax-only run with address spaces: only what MSL rejects too. See prelude/check/check.h and
/// Rewritten::member_spaces.
std::vector<Diagnostic> language_errors(const std::vector<ClangMessage>& messages, const std::set<std::string>& member_spaces);

}  // namespace metal_on_cpu
