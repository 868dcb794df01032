#include "image_file.h"

#include <cstring>
#include <sstream>

#include "cache.h"

namespace metal_on_cpu {
namespace {

// The object, the description, its length as 16 hexadecimal digits, the mark.
constexpr const char* kMark = "metal-on-cpu image\n";
constexpr size_t kDigits = 16;

std::string digits(size_t n) {
  std::string text;
  for (int shift = 60; shift >= 0; shift -= 4) text += "0123456789abcdef"[n >> shift & 15];
  return text;
}

}  // namespace

std::string write_image_file(const std::string& path, const std::string& object, const ImageOrigin& origin) {
  std::string text =
      "build " + prelude_digest() + "\nsource " + origin.source + "\nmode " + (origin.checked ? "checked" : "fast") + "\n";
  for (const auto& [index, value] : origin.constants.by_index) text += "index " + std::to_string(index) + " " + value + "\n";
  for (const auto& [name, value] : origin.constants.by_name) text += "name " + name + " " + value + "\n";
  const std::string code = read_file(object);
  if (code.empty()) return object + ": cannot be read";
  return write_file(path, code + text + digits(text.size()) + kMark) ? "" : path + ": cannot be written";
}

Result<ImageOrigin> read_image_file(const std::string& path) {
  const std::string all = read_file(path);
  const size_t tail = kDigits + std::strlen(kMark);
  if (all.size() < tail || !all.ends_with(kMark))
    return Error{path + ": is no image (msl-run --emit makes them), or is cut off"};
  const size_t length = std::strtoull(all.substr(all.size() - tail, kDigits).c_str(), nullptr, 16);
  if (length > all.size() - tail) return Error{path + ": says that its description is longer than the file"};
  std::istringstream lines(all.substr(all.size() - tail - length, length));
  ImageOrigin origin;
  for (std::string line; std::getline(lines, line);) {
    const size_t blank = line.find(' '), second = line.find(' ', blank + 1);
    const std::string key = line.substr(0, blank), value = line.substr(blank + 1);
    const std::string first = line.substr(blank + 1, second - blank - 1);
    if (key == "build" && value != prelude_digest())
      return Error{path + ": was made by another version of the test-bed; make it again"};
    if (key == "source") origin.source = value;
    if (key == "mode") origin.checked = value == "checked";
    if (key == "index") origin.constants.by_index[static_cast<uint32_t>(std::stoul(first))] = line.substr(second + 1);
    if (key == "name") origin.constants.by_name[first] = line.substr(second + 1);
  }
  return origin;
}

}  // namespace metal_on_cpu
