#include "gguf.h"

#include <cstring>
#include <stdexcept>

namespace llm {
namespace {

namespace mm = metal_marlin;

/// Elements may begin at any byte of the file.
template <class T>
std::vector<double> elements(const marlin_value& array) {
  std::vector<double> all(array.count);
  const auto* at = static_cast<const char*>(array.data);
  for (double& number : all) {
    T element;
    std::memcpy(&element, at, sizeof element);
    number = static_cast<double>(element);
    at += sizeof element;
  }
  return all;
}

}  // namespace

bool Metadata::has(const std::string& key) const {
  auto found = mm::make<marlin_value>();
  return marlin_checkpoint_value(checkpoint_.get(), key.c_str(), &found, nullptr) == MARLIN_OK;
}

marlin_value Metadata::value(const std::string& key) const {
  if (!has(key)) throw std::runtime_error(file_ + ": has no key '" + key + "'");
  return checkpoint_.value(key);
}

void Metadata::fail(const std::string& key, const char* expected) const {
  throw std::runtime_error(file_ + ": key '" + key + "': expected " + expected +
                           ", found another type");
}

std::vector<std::string> Metadata::keys() const {
  std::vector<std::string> all;
  for (const marlin_value& each : checkpoint_.values()) all.emplace_back(each.key, each.key_bytes);
  return all;
}

bool Metadata::is_number(const std::string& key) const {
  const marlin_value_type kind = value(key).kind;
  return kind != MARLIN_VALUE_STRING && kind != MARLIN_VALUE_ARRAY;
}

double Metadata::number(const std::string& key) const {
  if (!is_number(key)) fail(key, "a number");
  return value(key).f64;
}

std::string Metadata::text(const std::string& key) const {
  const marlin_value found = value(key);
  if (found.kind != MARLIN_VALUE_STRING) fail(key, "a string");
  return {static_cast<const char*>(found.data), found.bytes};
}

std::vector<double> Metadata::numbers(const std::string& key) const {
  const marlin_value found = value(key);
  switch (found.element_type) {  // NONE of what is no array
    case MARLIN_VALUE_BOOL:
    case MARLIN_VALUE_U8:
      return elements<uint8_t>(found);
    case MARLIN_VALUE_I8:
      return elements<int8_t>(found);
    case MARLIN_VALUE_U16:
      return elements<uint16_t>(found);
    case MARLIN_VALUE_I16:
      return elements<int16_t>(found);
    case MARLIN_VALUE_U32:
      return elements<uint32_t>(found);
    case MARLIN_VALUE_I32:
      return elements<int32_t>(found);
    case MARLIN_VALUE_U64:
      return elements<uint64_t>(found);
    case MARLIN_VALUE_I64:
      return elements<int64_t>(found);
    case MARLIN_VALUE_F32:
      return elements<float>(found);
    case MARLIN_VALUE_F64:
      return elements<double>(found);
    default:
      fail(key, "numbers");
  }
}

std::vector<std::string> Metadata::texts(const std::string& key) const {
  const marlin_value found = value(key);
  if (found.element_type != MARLIN_VALUE_STRING) fail(key, "strings");
  std::vector<std::string> all;
  all.reserve(found.count);
  for (const std::string_view string : mm::strings_of(found)) all.emplace_back(string);
  return all;
}

}  // namespace llm
