#include "packed_buffer.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <vector>

#include "log.h"

namespace marlin_ggml {
namespace {

bool overlap(const Matrix& matrix, const char* begin, const char* end) {
  return matrix.data < end && begin < matrix.end();
}

/// Gives the system the pages that lie whole in [begin, end) back. They read as zeros then.
void drop_pages(const char* begin, const char* end) {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto from = (reinterpret_cast<uintptr_t>(begin) + page - 1) / page * page,
             to = reinterpret_cast<uintptr_t>(end) / page * page;
  if (from < to) madvise(reinterpret_cast<void*>(from), to - from, MADV_DONTNEED);
}

/// The bytes [begin, end) of the packed matrix.
void copy_packed(const marlin_weights& weights, const Matrix& matrix, const char* begin,
                 const char* end, char* to) {
  // A few rows at a time, as a program may read all of a large matrix.
  constexpr ptrdiff_t kRows = 256;
  const auto row_bytes = static_cast<ptrdiff_t>(matrix.row_bytes());
  std::vector<char> rows;
  for (const char* at = begin; at < end;) {
    const ptrdiff_t first = (at - matrix.data) / row_bytes,
                    past = (end - matrix.data + row_bytes - 1) / row_bytes,
                    count = std::min(ptrdiff_t{kRows}, past - first),
                    skipped = at - matrix.data - first * row_bytes,
                    taken = std::min(count * row_bytes - skipped, end - at);
    rows.resize(static_cast<size_t>(count * row_bytes));
    unpack_rows(weights, matrix, first, count, rows.data());
    std::memcpy(to, rows.data() + skipped, static_cast<size_t>(taken));
    at += taken;
    to += taken;
  }
}

}  // namespace

// Pages of this memory exist once they are written. Those of weights, which are packed from where
// the program has them, never are.
std::unique_ptr<PackedBuffer> PackedBuffer::create(marlin_context* context, size_t size) {
  if (size > PTRDIFF_MAX) return nullptr;
  const size_t mapped = std::max<size_t>(size, 1);
  void* const memory = mmap(nullptr, mapped, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  return std::unique_ptr<PackedBuffer>(
      new PackedBuffer(context, static_cast<char*>(memory), mapped));
}

PackedBuffer::~PackedBuffer() { munmap(memory_, size_); }

void PackedBuffer::forget(const char* begin, const char* end) {
  // What lies beside the range belongs to the same matrix, and stays.
  for (auto& [matrix, packed] : packed_) {
    if (packed.alone && overlap(matrix, begin, end) && (matrix.data < begin || matrix.end() > end))
      lay_out(matrix.data, matrix.end());
  }
  std::erase_if(packed_, [&](const auto& entry) { return overlap(entry.first, begin, end); });
}

void PackedBuffer::lay_out(const char* begin, const char* end) {
  for (auto& [matrix, packed] : packed_) {
    if (!packed.alone || !overlap(matrix, begin, end)) continue;
    unpack_rows(*packed.weights, matrix, 0, matrix.n, const_cast<char*>(matrix.data));
    packed.alone = false;
  }
}

void PackedBuffer::lay_out(const ggml_tensor& tensor) {
  if (block_type(tensor.type) == nullptr) return;
  const auto* begin = static_cast<const char*>(tensor.data);
  const std::lock_guard lock(mutex_);
  lay_out(begin, begin + ggml_nbytes(&tensor));
}

void PackedBuffer::clear(uint8_t value) {
  const std::lock_guard lock(mutex_);
  forget(base(), base() + size_);
  std::memset(base(), value, size_);
}

void PackedBuffer::fill(const ggml_tensor& tensor, uint8_t value, size_t offset, size_t size) {
  const std::lock_guard lock(mutex_);
  char* to = static_cast<char*>(tensor.data) + offset;
  forget(to, to + size);
  std::memset(to, value, size);
}

void PackedBuffer::note_written(const ggml_tensor& tensor) {
  const auto* begin = static_cast<const char*>(tensor.data);
  const char* end = begin + ggml_nbytes(&tensor);
  const std::lock_guard lock(mutex_);
  const char*& known = written_[begin];
  if (known != nullptr && known >= end) return;
  known = end;
  lay_out(begin, end);  // a graph may write some of it
  forget(begin, end);
}

bool PackedBuffer::is_written(const char* begin, const char* end) const {
  return std::ranges::any_of(
      written_, [&](const auto& range) { return range.first < end && begin < range.second; });
}

bool PackedBuffer::is_written(const ggml_tensor& tensor) {
  const auto* begin = static_cast<const char*>(tensor.data);
  const std::lock_guard lock(mutex_);
  return is_written(begin, begin + ggml_nbytes(&tensor));
}

/// Packs the bytes at `data` as this tensor, which has no gaps. False if they cannot be packed or
/// if the packed copy would not give all of them back.
bool PackedBuffer::pack_alone(const ggml_tensor& tensor, const char* data) {
  bool from_file = true;
  const auto pack_piece = [&](const Matrix& piece, int64_t) {
    Matrix from = piece;
    from.data = data + (piece.data - static_cast<const char*>(tensor.data));
    Packed packed{nullptr, true};
    auto error = metal_marlin::make<marlin_error>();
    if (pack_matrix(context_, from, packed.weights, error) != MARLIN_OK ||
        !holds_all(*packed.weights, from))
      return false;
    packed_.emplace(piece, std::move(packed));
    drop_pages(piece.data, piece.end());
    const bool left = file_pages(from.data, static_cast<size_t>(from.end() - from.data)).let_go();
    from_file = from_file && left;
    return true;
  };
  try {
    for (int64_t i3 = 0; i3 < tensor.ne[3]; ++i3) {
      for (int64_t i2 = 0; i2 < tensor.ne[2]; ++i2) {
        if (!for_each_piece(tensor, i2, i3, pack_piece)) return false;
      }
    }
    if (from_file) packed_from_.emplace_back(data, ggml_nbytes(&tensor));
  } catch (const std::bad_alloc&) {
    return false;
  }
  return true;
}

void PackedBuffer::set(const ggml_tensor& tensor, const void* data, size_t offset, size_t size,
                       bool weights) {
  const auto* from = static_cast<const char*>(data);
  char* to = static_cast<char*>(tensor.data) + offset;
  const std::lock_guard lock(mutex_);
  forget(to, to + size);
  const bool packs = weights && block_type(tensor.type) != nullptr &&
                     size == ggml_nbytes(&tensor) && ggml_is_contiguous(&tensor) &&
                     !is_written(to, to + size);
  // ggml gives no way to fail here: what cannot be packed fails again, and is told, when it is
  // multiplied by.
  if (packs && pack_alone(tensor, from)) return;
  if (packs)
    log(GGML_LOG_LEVEL_DEBUG, "weights '%s': the bytes stay beside the packed copy", tensor.name);
  for (auto& [matrix, packed] : packed_) {
    if (overlap(matrix, to, to + size)) packed.alone = false;
  }
  std::memcpy(to, data, size);
}

void PackedBuffer::get(const ggml_tensor& tensor, void* data, size_t offset, size_t size) {
  const char* at = static_cast<const char*>(tensor.data) + offset;
  const char* const end = at + size;
  auto* to = static_cast<char*>(data);
  const std::lock_guard lock(mutex_);
  const auto copy_until = [&](const char* until) {
    if (at >= until) return;
    std::memcpy(to, at, static_cast<size_t>(until - at));
    to += until - at;
    at = until;
  };
  // In the order of their data, and none overlaps another.
  for (const auto& [matrix, packed] : packed_) {
    if (!packed.alone || !overlap(matrix, at, end)) continue;
    copy_until(matrix.data);
    const char* const until = std::min(end, matrix.end());
    copy_packed(*packed.weights, matrix, at, until, to);
    to += until - at;
    at = until;
  }
  copy_until(end);
}

marlin_status PackedBuffer::pack(const Matrix& matrix, Weights& out, marlin_error& error) {
  const std::lock_guard lock(mutex_);
  if (const auto found = packed_.find(matrix); found != packed_.end()) {
    out = found->second.weights;
    return MARLIN_OK;
  }
  lay_out(matrix.data, matrix.end());  // a view of what is packed
  try {
    if (const marlin_status status = pack_matrix(context_, matrix, out, error); status != MARLIN_OK)
      return status;
    packed_.emplace(matrix, Packed{out});
  } catch (const std::bad_alloc&) {
    return MARLIN_E_MEMORY;
  }
  return MARLIN_OK;
}

// Functions without captures throw nothing. NOLINTNEXTLINE(bugprone-throwing-static-initialization)
const BufferFunctions kBufferFunctions = {
    .free_buffer = [](ggml_backend_buffer_t buffer) { delete &packed_buffer(buffer); },
    .get_base = [](ggml_backend_buffer_t buffer) -> void* { return packed_buffer(buffer).base(); },
    .init_tensor = nullptr,
    .memset_tensor = [](ggml_backend_buffer_t buffer, ggml_tensor* tensor, uint8_t value,
                        size_t offset,
                        size_t size) { packed_buffer(buffer).fill(*tensor, value, offset, size); },
    .set_tensor =
        [](ggml_backend_buffer_t buffer, ggml_tensor* tensor, const void* data, size_t offset,
           size_t size) {
          packed_buffer(buffer).set(*tensor, data, offset, size,
                                    buffer->usage == GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
        },
    .get_tensor = [](ggml_backend_buffer_t buffer, const ggml_tensor* tensor, void* data,
                     size_t offset,
                     size_t size) { packed_buffer(buffer).get(*tensor, data, offset, size); },
    .set_tensor_2d = nullptr,
    .get_tensor_2d = nullptr,
    .cpy_tensor = nullptr,
    .clear = [](ggml_backend_buffer_t buffer,
                uint8_t value) { packed_buffer(buffer).clear(value); },
    .reset = nullptr,
};

}  // namespace marlin_ggml
