#include "checkpoints/value_table.h"

#include <algorithm>
#include <cinttypes>
#include <numeric>

#include "base/bits.h"
#include "checkpoints/sort_mapped.h"

namespace metal_marlin {
namespace {

template <class T>
std::optional<T> take(std::span<const std::byte>& rest) {
  if (rest.size() < sizeof(T)) return std::nullopt;
  const T value = load<T>(rest.data());
  rest = rest.subspan(sizeof(T));
  return value;
}

bool is_type(int32_t type) {
  return type >= 0 && static_cast<size_t>(type) < std::size(gguf::kValueBytes);
}

/// Leaves `count` elements in `rest`. False if it holds fewer.
bool cut_elements(std::span<const std::byte>& rest, gguf::ValueType type, uint64_t count) {
  if (type == gguf::kArray) return false;
  if (type != gguf::kString) {
    const uint64_t bytes = gguf::kValueBytes[type];
    if (count > rest.size() / bytes) return false;
    rest = rest.first(count * bytes);
    return true;
  }
  std::span<const std::byte> left = rest;
  for (uint64_t i = 0; i < count; ++i) {
    if (!take_gguf_string(left)) return false;
  }
  rest = rest.first(rest.size() - left.size());
  return true;
}

std::optional<Value> parse(std::span<const std::byte> rest) {
  Value value;
  const auto key = take_gguf_string(rest);
  if (!key) return std::nullopt;
  value.key = *key;
  const auto type = take<int32_t>(rest);
  if (!type || !is_type(*type)) return std::nullopt;
  value.type = static_cast<gguf::ValueType>(*type);
  if (value.type == gguf::kArray) {
    const auto element_type = take<int32_t>(rest);
    const auto count = take<uint64_t>(rest);
    if (!element_type || !count || !is_type(*element_type)) return std::nullopt;
    value.element_type = static_cast<gguf::ValueType>(*element_type);
    value.count = *count;
    if (!cut_elements(rest, value.element_type, value.count)) return std::nullopt;
    value.data = rest;
    return value;
  }
  std::span<const std::byte> text = rest;
  if (!cut_elements(rest, value.type, 1)) return std::nullopt;
  value.data = rest;
  if (value.type == gguf::kString) {
    const auto string = take_gguf_string(text);
    if (!string) return std::nullopt;
    value.data = std::as_bytes(std::span(*string));
  }
  return value;
}

}  // namespace

std::optional<std::string_view> take_gguf_string(std::span<const std::byte>& rest) {
  const auto size = take<uint64_t>(rest);
  if (!size || *size > rest.size()) return std::nullopt;
  const std::string_view text(reinterpret_cast<const char*>(rest.data()), *size);
  rest = rest.subspan(*size);
  return text;
}

ValueTable::ValueTable(std::span<const std::byte> bytes, std::vector<uint64_t> begins)
    : bytes_(bytes), begins_(std::move(begins)), by_key_(begins_.empty() ? 0 : begins_.size() - 1) {
  std::iota(by_key_.begin(), by_key_.end(), 0u);
  sort_mapped(std::span(by_key_), [&](uint32_t a, uint32_t b) {
    const int order = key(a).compare(key(b));
    return order != 0 ? order < 0 : a < b;
  });
}

ValueTable::ValueTable(std::vector<std::byte> bytes, std::vector<uint64_t> begins)
    : ValueTable(std::span<const std::byte>(bytes), std::move(begins)) {
  owned_ = std::move(bytes);
}

std::span<const std::byte> ValueTable::raw(size_t index) const {
  return bytes_.subspan(begins_[index], begins_[index + 1] - begins_[index]);
}

std::string_view ValueTable::key(size_t index) const {
  std::span<const std::byte> rest = raw(index);
  return take_gguf_string(rest).value_or(std::string_view());
}

Result<Value> ValueTable::at(size_t index) const {
  const auto value = parse(raw(index));
  if (value) return *value;
  return Status::error(MARLIN_E_FORMAT,
                       "value %zu: byte %" PRIu64 ": the file changes while it is read", index,
                       begins_[index]);
}

std::optional<size_t> ValueTable::find(std::string_view wanted) const {
  const auto at =
      std::lower_bound(by_key_.begin(), by_key_.end(), wanted,
                       [&](uint32_t index, std::string_view text) { return key(index) < text; });
  if (at == by_key_.end() || key(*at) != wanted) return std::nullopt;
  return *at;
}

std::optional<size_t> ValueTable::repeated() const {
  const auto twice = std::adjacent_find(by_key_.begin(), by_key_.end(),
                                        [&](uint32_t a, uint32_t b) { return key(a) == key(b); });
  if (twice == by_key_.end()) return std::nullopt;
  return twice[1];
}

}  // namespace metal_marlin
