// The places of all tensors of a checkpoint, over all its files.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "layouts/tensor_view.h"

namespace metal_marlin {

/// The name of a file in a message: its last 60 bytes, which tell the shards of a model apart.
const char* file_label(const std::string& name) noexcept;

/// A hostile header can name a million tensors, so an entry is small: names and dimensions lie in a
/// common pool, where a dimension takes fewer bytes than in any header.
class TensorTable {
 public:
  /// The error for a name of no tensor; `place` says where it is not: "in none of the files".
  static Status not_found(std::string_view name, const std::string& place);
  /// Adds a file, whose bytes must outlive the table, and returns its number.
  uint32_t add_file(std::string name, std::span<const std::byte> bytes);
  /// If these are the first tensors, reserves memory for exactly this many, with this sum of their
  /// pool_bytes.
  void reserve(size_t tensors, size_t pool_bytes);
  static size_t pool_bytes(std::string_view name, std::span<const int64_t> dims);
  /// The type of tensors whose type this version does not know: bytes. Its name is "type NAME",
  /// which is no name of a known type.
  const ElementType& unknown_type(std::string_view name);
  /// The range [offset, offset + bytes) must lie inside the file. dims are >= 0 and outermost
  /// first.
  void add(uint32_t file, std::string_view name, const ElementType& type,
           std::span<const int64_t> dims, uint64_t offset, uint64_t bytes);
  /// Sorts the tensors from `first` on by their offset in the file.
  void sort_by_offset(size_t first);
  /// Must be called once after the last add and before find. Two tensors of one name are
  /// MARLIN_E_FORMAT.
  Status finish();

  /// A text of a file's metadata that may say how its tensors were quantized.
  struct Text {
    uint32_t file;
    bool is_config;  ///< the whole config of a model; else a section of one
    std::string text;
  };
  /// Keeps the text, unless it is there already or the texts would take more than 1 MB.
  void add_text(uint32_t file, bool is_config, std::string_view text);
  const std::vector<Text>& texts() const noexcept { return texts_; }

  size_t size() const noexcept { return records_.size(); }
  size_t name_bytes() const noexcept { return name_bytes_; }  ///< of all names together
  std::string_view name(size_t index) const noexcept;
  uint32_t file(size_t index) const noexcept { return records_[index].file; }
  uint32_t file_count() const noexcept { return static_cast<uint32_t>(files_.size()); }
  const std::string& file_name(uint32_t file) const noexcept { return files_[file].name; }
  std::span<const std::byte> file_bytes(uint32_t file) const noexcept { return files_[file].bytes; }
  struct Range {
    uint64_t offset, bytes;
  };
  const ElementType& type(size_t index) const noexcept { return *records_[index].type; }
  Range range(size_t index) const noexcept {
    return {records_[index].offset, records_[index].bytes};
  }  ///< in its file
  TensorView view(size_t index) const;
  std::optional<size_t> find(std::string_view name) const;
  /// Calls visit(index) for each tensor whose name begins with `prefix`, in the order of names.
  template <class Visit>
  void for_each_with_prefix(std::string_view prefix, Visit visit) const {
    for (auto at = first_from(prefix); at != by_name_.end() && name(*at).starts_with(prefix); ++at)
      visit(static_cast<size_t>(*at));
  }
  /// A view with data == nullptr if there is no such tensor.
  TensorView view(std::string_view name) const;

 private:
  struct File {
    std::string name;
    std::span<const std::byte> bytes;
  };
  struct Record {
    const ElementType* type;
    uint64_t offset, bytes;
    size_t name;  // into the pool: the name, the rank, and each dimension in pieces of 7 bits, the
                  // lowest first
    uint32_t name_size, file;
  };
  struct UnknownType {
    std::string name;
    ElementType type;
  };
  /// The first tensor, by name, that is not before `name`.
  std::vector<uint32_t>::const_iterator first_from(std::string_view name) const;

  std::deque<File> files_;
  std::vector<Record> records_;
  std::vector<char> pool_;  // no std::string: views into it survive a move of the table
  std::vector<std::unique_ptr<const UnknownType>> unknown_types_;
  std::vector<Text> texts_;
  std::vector<uint32_t> by_name_;
  size_t name_bytes_ = 0;
};

/// Whether TensorTable::unknown_type() has made it.
bool is_unknown_type(std::string_view name) noexcept;

/// Bytes of a tensor, or nothing if a product wraps or if the elements are not a whole number of
/// blocks.
std::optional<uint64_t> tensor_bytes(const ElementType& type,
                                     std::span<const int64_t> dims) noexcept;

}  // namespace metal_marlin
