#include "file_rows.h"

#include <cstdint>
#include <map>
#include <mutex>
#include <utility>

#include "log.h"
#include "packing.h"

namespace marlin_ggml {
namespace {

/// The parts of files that were packed, and by how many tensors. It lasts until the process ends,
/// because a program may free buffers as late as that.
struct FileParts {
  struct FilePart {
    size_t size = 0;
    int count = 0;
  };
  std::mutex mutex;
  std::map<const void*, FilePart> all;
};
FileParts& parts() {
  static FileParts& the_ones = *new FileParts;
  return the_ones;
}

}  // namespace

PartOfFile::PartOfFile(const void* data, size_t size) : data_(data) {
  const std::lock_guard lock(parts().mutex);
  FileParts::FilePart& part = parts().all[data];
  part.size = size;
  ++part.count;
}

PartOfFile::PartOfFile(PartOfFile&& other) noexcept : data_(std::exchange(other.data_, nullptr)) {}

PartOfFile::~PartOfFile() {
  if (data_ == nullptr) return;
  const std::lock_guard lock(parts().mutex);
  const auto found = parts().all.find(data_);
  if (--found->second.count == 0) parts().all.erase(found);
}

bool FileRows::takes(const ggml_tensor& node) {
  if (node.op != GGML_OP_GET_ROWS || node.type != GGML_TYPE_F32 || !ggml_is_matrix(&node))
    return false;
  const ggml_tensor &table = *node.src[0], &ids = *node.src[1];
  if (block_type(table.type) == nullptr || !ggml_is_matrix(&table) || !ggml_is_contiguous(&table) ||
      ids.type != GGML_TYPE_I32 || !ggml_is_vector(&ids) || !ggml_is_contiguous(&ids) ||
      node.nb[0] != sizeof(float))
    return false;
  const std::lock_guard lock(parts().mutex);
  const auto found = parts().all.find(table.data);
  return found != parts().all.end() && found->second.size == ggml_nbytes(&table);
}

ggml_status FileRows::read(const ggml_tensor& node) {
  constexpr int kRows = 64;
  const ggml_tensor& table = *node.src[0];
  const auto* ids = static_cast<const int32_t*>(node.src[1]->data);
  const ggml_to_float_t decode = ggml_get_type_traits(table.type)->to_float;
  FilePages
      pages;  // looked up anew for each node: the program may have mapped something else there
  for (int64_t i = 0; i < node.ne[1]; ++i) {
    if (ids[i] < 0 || ids[i] >= table.ne[1]) {
      log(GGML_LOG_LEVEL_ERROR, "node '%s': row %d is %d, expected 0 .. %d", node.name,
          static_cast<int>(i), static_cast<int>(ids[i]), static_cast<int>(table.ne[1] - 1));
      return GGML_STATUS_FAILED;
    }
    decode(static_cast<const char*>(table.data) + ids[i] * static_cast<int64_t>(table.nb[1]),
           reinterpret_cast<float*>(static_cast<char*>(node.data) +
                                    i * static_cast<int64_t>(node.nb[1])),
           table.ne[0]);
    if (++rows_ % kRows != 0) continue;
    if (pages.begin == nullptr) pages = file_pages(table.data, ggml_nbytes(&table));
    pages.let_go();
  }
  return GGML_STATUS_SUCCESS;
}

}  // namespace marlin_ggml
