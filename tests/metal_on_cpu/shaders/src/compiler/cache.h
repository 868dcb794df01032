// The folder of images: names made of contents, files that appear whole or not at all.
#pragma once

#include <filesystem>
#include <string>

#include "../../include/metal_on_cpu/metal_on_cpu.h"

namespace metal_on_cpu {

/// 128 bits of FNV-1a from two starting points: a name for contents, not a signature.
std::string digest(const std::string& text);
/// Everything but the shader that an image depends on.
const std::string& prelude_digest();

Result<std::filesystem::path> cache_folder(const CompileOptions& options);

/// A name beside `name` that nobody else has.
std::filesystem::path temporary_name(const std::filesystem::path& name);
/// Renames a file that is complete.
bool publish(const std::filesystem::path& temporary, const std::filesystem::path& final_name);
bool write_file(const std::filesystem::path& path, const std::string& text);
std::string read_file(const std::filesystem::path& path);

/// Writes the length of a finished file behind its end, where no loader looks.
bool add_length(const std::filesystem::path& path);
/// Whether the file is as add_length() has left it. One that was cut off, or is not there, is not.
bool has_its_length(const std::filesystem::path& path);

}  // namespace metal_on_cpu
