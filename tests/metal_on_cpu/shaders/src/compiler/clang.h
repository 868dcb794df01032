// How clang is called: its flags, and headers that it has read in advance.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "../../include/metal_on_cpu/metal_on_cpu.h"
#include "process.h"
#include "token.h"

namespace metal_on_cpu {

using Words = std::vector<std::string>;

Words operator+(Words a, const Words& b);
std::string join(const Words& words);

/// Runs clang-19.
ProcessResult clang(const Words& arguments, const std::string& input);
/// Makes a shared object of an object's bytes. clang says once in a process how it links, and is not started for each.
ProcessResult link_shared(const std::string& object, const std::filesystem::path& shared);
/// What clang says was wrong with the shader.
Error compile_error(const std::vector<Diagnostic>& errors, const ProcessResult& clang);

/// Flags of the language, of the processor, and of checked mode.
Words language_flags(const CompileOptions& options);
const Words& target_flags();
const Words& checking_flags();
/// For a GPU with simdgroups of 32, with the headers of this processor; nothing is vectorized that a GPU does not have.
const Words& gpu_flags();

/// Compiles with a header of the prelude before the text, which clang reads once for each set of flags and then keeps in
/// `folder`. `flags` hold for the header too, `more` for the text only.
ProcessResult compile_behind(const std::string& header, const std::filesystem::path& folder, const Words& flags,
                             const Words& more, const std::string& text);

}  // namespace metal_on_cpu
