// The head and the directory of a packed container (.marlin). docs/formats.md defines them byte by
// byte; directory.cc reads and writes them by one description.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "core/packed_form.h"

namespace metal_marlin {

inline constexpr size_t kContainerHeadBytes = 64;
/// The newest; 1 has no PackedMatrix::own, which is 0.
inline constexpr uint32_t kContainerVersion = 2;
/// Packed matrices begin at multiples of a page, so that a mapping of the file has them aligned.
inline constexpr uint64_t kContainerAlign = 4096;

inline constexpr uint64_t kMostName = 65535;  ///< bytes

/// How a user makes a container of a source file; for messages.
inline constexpr char kPackCommand[] = "metal-marlin pack SOURCE -o OUT.marlin";

/// A piece of the file.
struct ContainerBlock {
  uint64_t offset = 0, bytes = 0;
  uint64_t checksum = 0;  ///< of the bytes
};

/// One packed matrix. The group index is in a block of its own, [k] int32; without one, the block
/// has no bytes and matrix.meta no group index. matrix.data and the group index of the meta are not
/// part of the directory.
struct ContainerMatrix {
  PackedMatrix matrix;
  ContainerBlock data, group_index;
};

/// Between the names of layers that are packed together: the name of their entry.
inline constexpr char kJoinsLayers = '+';

/// The names of layers that are packed together. They lie in one text, because a directory may
/// name a million layers in few bytes.
class LayerNames {
 public:
  void reserve(size_t count) { ends_.reserve(count); }
  void push_back(std::string_view name) {
    if (!empty()) joined_ += kJoinsLayers;
    joined_ += name;
    ends_.push_back(joined_.size());
  }
  void clear() { *this = {}; }
  bool empty() const { return ends_.empty(); }
  size_t size() const { return ends_.size(); }
  std::string_view operator[](size_t index) const {
    const size_t begin = index == 0 ? 0 : ends_[index - 1] + 1;
    return std::string_view(joined_).substr(begin, ends_[index] - begin);
  }
  /// "a+b" of the names a and b.
  const std::string& joined() const { return joined_; }

 private:
  std::string joined_;
  std::vector<size_t> ends_;
};

/// What one marlin_weights_load gives: layers joined along N, of one or more experts.
struct ContainerEntry {
  LayerNames layers;         ///< those that were loaded, in order
  marlin_layout layout = 0;  ///< of the first layer in the source file
  std::vector<ContainerMatrix> experts;
};

/// A tensor that is as the source file has it.
struct ContainerTensor {
  std::string name, type;
  bool is_gguf = false;  ///< type is a name of GGUF, else of safetensors
  std::vector<int64_t> dims;
  ContainerBlock data;
};

struct ContainerDirectory {
  uint32_t version = 1;  ///< of the container: 2 if a matrix has its own
  PackedForm form;
  uint32_t library_version = 0;  ///< of the writer, as marlin_version() gives it
  uint32_t rank = 0, ranks = 1;
  std::string source;                  ///< the name of the source file, without its folder
  uint64_t source_fingerprint = 0;     ///< checksum of the names, types and sizes of its tensors
  ContainerBlock values;               ///< key-values as a GGUF has them, one behind another
  std::vector<uint64_t> value_begins;  ///< where each begins in the block, and where the last ends
  std::vector<ContainerTensor> tensors;
  std::vector<ContainerEntry> entries;
};

struct ContainerHead {
  uint32_t version = 1;
  uint64_t file_bytes = 0;
  ContainerBlock directory;
};

/// The head as bytes.
std::array<std::byte, kContainerHeadBytes> encode_head(const ContainerHead& head);
/// Whether these bytes begin as a container does.
bool is_container(std::span<const std::byte> bytes);
/// Reads and checks the head of a whole file. `file` is for messages. MARLIN_E_FORMAT for a file
/// that is damaged, cut off or of the other byte order; MARLIN_E_UNSUPPORTED for a newer version.
Result<ContainerHead> decode_head(const std::string& file, std::span<const std::byte> bytes);

std::vector<std::byte> encode_directory(const ContainerDirectory& directory);
/// `bytes` are the whole file. Every number is checked before anything relies on it: blocks lie
/// between head and directory, matrices at pages, enumerations are known, counts fit the bytes, and
/// the experts of a layer are of one kind.
Result<ContainerDirectory> decode_directory(const std::string& file,
                                            std::span<const std::byte> bytes,
                                            const ContainerHead& head);

/// MARLIN_E_FORMAT if a byte of the file belongs to two blocks.
Status check_apart(const std::string& file, const ContainerDirectory& directory);

}  // namespace metal_marlin
