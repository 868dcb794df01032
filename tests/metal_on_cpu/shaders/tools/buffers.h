// The buffers of msl-run: their contents from words of the command line, and the text of their values.
#pragma once

#include <charconv>
#include <cstdint>
#include <string>
#include <vector>

#include <metal_on_cpu/result.h>

namespace msl_run {

/// The whole text as a number.
template <class T>
bool number(const std::string& text, T& value) {
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  return status == std::errc() && end == text.data() + text.size();
}

struct Type;

struct Buffer {
  std::vector<char> bytes;
  const Type* type = nullptr;  // none: a size, a file or random bytes, which are not printed
};

/// @N or @N+BYTES: the memory of buffer N, from a byte on.
struct Alias {
  int buffer = 0;
  size_t offset = 0;
};
bool read_alias(const std::string& spec, Alias& alias);

/// The names of the types of values, for the help.
std::string type_names();

/// TYPE:V[,V...], TYPE:zeros(N), random:BYTES, a number of bytes, or the name of a file. At most kMostBytes.
constexpr size_t kMostBytes = (size_t{1} << 33) - 1;
metal_on_cpu::Result<Buffer> make_buffer(const std::string& spec, uint64_t seed);

/// "float: 1 2.5 3"; of a long buffer the first values and their number.
std::string values_text(const Buffer& buffer);

}  // namespace msl_run
