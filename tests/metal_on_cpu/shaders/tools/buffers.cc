#include "buffers.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <new>
#include <optional>
#include <random>
#include <sstream>
#include <stdexcept>

namespace msl_run {

using metal_on_cpu::Error;
using metal_on_cpu::Result;

/// How a value of a type is read from text and written as text.
struct Type {
  const char* name;
  size_t bytes;
  bool (*read)(const std::string& text, char* to);
  std::string (*text)(const char* from);
};

namespace {

constexpr size_t kMostPrinted = 64;

// A number of 16 bits with `fraction` bits after the point and the least exponent `least`: the nearest one, or of two the even.
uint16_t narrow(float value, int fraction, int least) {
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const auto infinity = static_cast<uint16_t>(0x7fff & -(1 << fraction));
  const double size = std::fabs(static_cast<double>(value));
  if (std::isnan(value)) return static_cast<uint16_t>(sign | infinity | (1 << (fraction - 1)));
  if (std::isinf(value)) return sign | infinity;
  int exponent = 0;
  std::frexp(size, &exponent);
  exponent = size == 0 ? least : std::max(exponent - 1, least);
  const double steps = std::nearbyint(std::ldexp(size, fraction - exponent));
  // The leading one of a normal number adds one to the exponent's bits, and so does a fraction that rounds up to it.
  const int bits = ((exponent - least) << fraction) + static_cast<int>(steps);
  return sign | static_cast<uint16_t>(std::min<int>(bits, infinity));
}

float widen(uint16_t bits, int fraction, int least) {
  const int size = bits & 0x7fff, infinity = 0x7fff & -(1 << fraction), exponent = size >> fraction;
  const int steps = exponent == 0 ? size : (size & ((1 << fraction) - 1)) | (1 << fraction);
  float value = std::ldexp(static_cast<float>(steps), std::max(exponent, 1) - 1 + least - fraction);
  if (size == infinity) value = std::numeric_limits<float>::infinity();
  if (size > infinity) value = std::numeric_limits<float>::quiet_NaN();
  return bits & 0x8000 ? -value : value;
}

template <class T>
bool read(const std::string& text, char* to) {
  T value{};
  if (!number(text, value)) return false;
  std::memcpy(to, &value, sizeof value);
  return true;
}

template <class T>
std::string shortest(T value) {
  char text[64];
  return std::string(text, std::to_chars(text, text + sizeof text, value).ptr);
}

template <class T>
std::string text(const char* from) {
  T value{};
  std::memcpy(&value, from, sizeof value);
  return shortest(value);
}

template <int kFraction, int kLeast>
bool read_narrow(const std::string& text, char* to) {
  float value = 0;
  if (!number(text, value)) return false;
  const uint16_t bits = narrow(value, kFraction, kLeast);
  std::memcpy(to, &bits, sizeof bits);
  return true;
}

template <int kFraction, int kLeast>
std::string text_of_narrow(const char* from) {
  uint16_t bits = 0;
  std::memcpy(&bits, from, sizeof bits);
  return shortest(widen(bits, kFraction, kLeast));
}

constexpr Type kTypes[] = {
    {"float", 4, read<float>, text<float>},
    {"half", 2, read_narrow<10, -14>, text_of_narrow<10, -14>},
    {"bfloat", 2, read_narrow<7, -126>, text_of_narrow<7, -126>},
    {"int", 4, read<int32_t>, text<int32_t>},
    {"uint", 4, read<uint32_t>, text<uint32_t>},
    {"short", 2, read<int16_t>, text<int16_t>},
    {"ushort", 2, read<uint16_t>, text<uint16_t>},
    {"char", 1, read<int8_t>, text<int8_t>},
    {"uchar", 1, read<uint8_t>, text<uint8_t>},
    {"long", 8, read<int64_t>, text<int64_t>},
    {"ulong", 8, read<uint64_t>, text<uint64_t>},
};

Result<Buffer> typed(const Type& type, const std::string& spec, const std::string& words) {
  Buffer buffer{{}, &type};
  size_t count = 0;
  if (words.starts_with("zeros(") && words.ends_with(")") && number(words.substr(6, words.size() - 7), count)) {
    if (count > std::numeric_limits<uint32_t>::max()) return Error{spec + ": more than 2^32 - 1 values"};
    buffer.bytes.resize(count * type.bytes);
    return buffer;
  }
  std::istringstream in(words);
  for (std::string word; std::getline(in, word, ',');) {
    buffer.bytes.resize(buffer.bytes.size() + type.bytes);
    if (!type.read(word, &*(buffer.bytes.end() - static_cast<std::ptrdiff_t>(type.bytes))))
      return Error{spec + ": expected values of " + type.name + " or zeros(N), found '" + word + "'"};
  }
  if (buffer.bytes.empty()) return Error{spec + ": expected values of " + type.name + " or zeros(N), found none"};
  return buffer;
}

std::vector<char> random_floats(size_t bytes, uint64_t seed) {
  std::vector<char> all(bytes);
  std::mt19937_64 random(seed + 1);
  std::uniform_real_distribution<float> values(-1, 1);
  for (size_t i = 0; i + sizeof(float) <= bytes; i += sizeof(float)) {
    const float v = values(random);
    std::memcpy(all.data() + i, &v, sizeof v);
  }
  return all;
}

}  // namespace

std::string type_names() {
  std::string names;
  for (const Type& type : kTypes) names += (names.empty() ? "" : ", ") + std::string(type.name);
  return names;
}

bool read_alias(const std::string& spec, Alias& alias) {
  if (!spec.starts_with("@")) return false;
  const size_t plus = spec.find('+');
  if (plus != std::string::npos && !number(spec.substr(plus + 1), alias.offset)) return false;
  return number(spec.substr(1, plus == std::string::npos ? plus : plus - 1), alias.buffer);
}

namespace {

Result<Buffer> made(const std::string& spec, uint64_t seed) {
  size_t bytes = 0;
  const auto too_large = [&] {
    return Error{spec + ": expected at most " + std::to_string(kMostBytes) + " bytes, found " + std::to_string(bytes)};
  };
  if (number(spec, bytes)) return bytes > kMostBytes ? Result<Buffer>(too_large()) : Buffer{std::vector<char>(bytes)};
  const size_t colon = spec.find(':');
  const std::string first = spec.substr(0, colon);
  if (colon != std::string::npos && first == "random" && number(spec.substr(colon + 1), bytes))
    return bytes > kMostBytes ? Result<Buffer>(too_large()) : Buffer{random_floats(bytes, seed)};
  for (const Type& type : kTypes) {
    if (colon != std::string::npos && first == type.name) return typed(type, spec, spec.substr(colon + 1));
  }
  std::ifstream in(spec, std::ios::binary);
  std::ostringstream text;
  if (!in || !(text << in.rdbuf())) {
    return Error{spec + ": expected TYPE:V[,V...], TYPE:zeros(N), random:BYTES, a number of bytes or a file"};
  }
  const std::string all = text.str();
  return Buffer{std::vector<char>(all.begin(), all.end())};
}

}  // namespace

Result<Buffer> make_buffer(const std::string& spec, uint64_t seed) {
  try {
    return made(spec, seed);
  } catch (const std::bad_alloc&) {
    return Error{spec + ": the system does not give this much memory"};
  } catch (const std::length_error&) {
    return Error{spec + ": more bytes than a buffer can have"};
  }
}

std::string values_text(const Buffer& buffer) {
  const size_t count = buffer.bytes.size() / buffer.type->bytes;
  std::string line = std::string(buffer.type->name) + ":";
  for (size_t i = 0; i < std::min(count, kMostPrinted); ++i)
    line += " " + buffer.type->text(buffer.bytes.data() + i * buffer.type->bytes);
  return count > kMostPrinted ? line + " ... (" + std::to_string(count) + " values)" : line;
}

}  // namespace msl_run
