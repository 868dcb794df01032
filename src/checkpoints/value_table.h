// The key-values of a checkpoint, as bytes of the form that a GGUF has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace metal_marlin {

namespace gguf {
/// The numbers of the types of values.
enum ValueType : int32_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kString,
  kArray,
  kU64,
  kI64,
  kF64
};
/// Bytes of a value of fixed size, indexed by its type number; 0: no fixed size (string, array).
inline constexpr uint8_t kValueBytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
}  // namespace gguf

/// One value. Its texts and its data borrow from the file.
struct Value {
  std::string_view key;
  gguf::ValueType type = gguf::kString;
  gguf::ValueType element_type = gguf::kString;  ///< of an array
  uint64_t count = 0;                            ///< of an array: its elements
  std::span<const std::byte> data;  ///< a number; a text; all elements, strings with their lengths
};

/// Keeps 12 bytes for each key-value: where it is, and its place in the order of the keys. The
/// bytes may be those of a mapped file that another process changes. Every read is therefore
/// bounded again.
class ValueTable {
 public:
  ValueTable() = default;
  /// Key-value i is bytes[begins[i], begins[i + 1]). `bytes` must outlive the table.
  ValueTable(std::span<const std::byte> bytes, std::vector<uint64_t> begins);
  /// The table owns these bytes.
  ValueTable(std::vector<std::byte> bytes, std::vector<uint64_t> begins);
  /// A table whose values cannot be read, for this reason.
  explicit ValueTable(const Status& status) : status_(status) {}

  const Status& status() const { return status_; }
  size_t size() const { return by_key_.size(); }
  /// Key, type and value. Precondition, here and below: index < size().
  std::span<const std::byte> raw(size_t index) const;
  uint64_t begin(size_t index) const { return begins_[index]; }
  std::string_view key(size_t index) const;
  /// MARLIN_E_FORMAT if the bytes are no value any more.
  Result<Value> at(size_t index) const;
  /// The first value with this key.
  std::optional<size_t> find(std::string_view key) const;
  /// The second of two values with one key.
  std::optional<size_t> repeated() const;

 private:
  std::vector<std::byte> owned_;  // a vector that moves keeps its memory
  std::span<const std::byte> bytes_;
  std::vector<uint64_t> begins_;
  std::vector<uint32_t> by_key_;
  Status status_;
};

/// The text that follows in an array of strings whose rest is `rest`, which then begins behind it.
/// Nothing if the rest holds no whole string.
std::optional<std::string_view> take_gguf_string(std::span<const std::byte>& rest);

}  // namespace metal_marlin
