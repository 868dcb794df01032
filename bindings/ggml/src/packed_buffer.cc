#include "packed_buffer.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <vector>

namespace marlin_ggml {

const BlockType* block_type(ggml_type type) {
  for (const BlockType& row : kBlockTypes) {
    if (row.type == type) return &row;
  }
  return nullptr;
}

Matrix matrix_of(const ggml_tensor& tensor, int64_t i2, int64_t i3) {
  const char* data = static_cast<const char*>(tensor.data) +
                     i2 * static_cast<int64_t>(tensor.nb[2]) +
                     i3 * static_cast<int64_t>(tensor.nb[3]);
  return {data, tensor.type, tensor.ne[1], tensor.ne[0], tensor.nb[1]};
}

namespace {

marlin_status pack_now(marlin_context* context, const Matrix& matrix, marlin_weights*& out,
                       marlin_error& error) {
  const BlockType& block = *block_type(matrix.type);
  const size_t row_bytes = ggml_row_size(matrix.type, matrix.k);
  const char* blocks = matrix.data;
  std::vector<char> rows;  // of a view of columns, which the C ABI takes only without gaps
  if (matrix.row_stride != row_bytes) {
    rows.reserve(static_cast<size_t>(matrix.n) * row_bytes);
    for (int64_t i = 0; i < matrix.n; ++i, blocks += matrix.row_stride)
      rows.insert(rows.end(), blocks, blocks + row_bytes);
    blocks = rows.data();
  }
  auto part = metal_marlin::make<marlin_pack_desc>();
  part.format = block.format;
  part.layout = MARLIN_LAYOUT_GGUF;
  part.n = matrix.n;
  part.k = matrix.k;
  part.flags = block.flags;
  part.values.data = const_cast<char*>(blocks);
  part.values.rows = matrix.n;
  part.values.cols = static_cast<int64_t>(row_bytes);
  part.values.dtype = MARLIN_U8;
  const marlin_pack_desc* parts[] = {&part};
  return marlin_weights_pack(context, parts, 1, 1, &out, &error);
}

}  // namespace

std::unique_ptr<PackedBuffer> PackedBuffer::create(marlin_context* context, size_t size) {
  if (size > SIZE_MAX - kAlignment) return nullptr;
  auto* memory = static_cast<char*>(
      std::aligned_alloc(kAlignment, (size + kAlignment) / kAlignment * kAlignment));
  if (memory == nullptr) return nullptr;
  return std::unique_ptr<PackedBuffer>(new PackedBuffer(context, memory));
}

void PackedBuffer::forget(const char* begin, size_t size) {
  const std::lock_guard lock(mutex_);
  std::erase_if(packed_, [&](const auto& entry) {
    return entry.first.data < begin + size && begin < entry.first.end();
  });
}

void PackedBuffer::clear(uint8_t value, size_t size) {
  forget(base(), size);
  std::memset(base(), value, size);
}

void PackedBuffer::fill(const ggml_tensor& tensor, uint8_t value, size_t offset, size_t size) {
  char* to = static_cast<char*>(tensor.data) + offset;
  forget(to, size);
  std::memset(to, value, size);
}

void PackedBuffer::note_written(const ggml_tensor& tensor) {
  const auto* begin = static_cast<const char*>(tensor.data);
  const char* end = begin + ggml_nbytes(&tensor);
  {
    const std::lock_guard lock(mutex_);
    const char*& known = written_[begin];
    if (known != nullptr && known >= end) return;
    known = end;
  }
  forget(begin, static_cast<size_t>(end - begin));
}

bool PackedBuffer::is_written(const ggml_tensor& tensor) {
  const auto* begin = static_cast<const char*>(tensor.data);
  const char* end = begin + ggml_nbytes(&tensor);
  const std::lock_guard lock(mutex_);
  return std::ranges::any_of(
      written_, [&](const auto& range) { return range.first < end && begin < range.second; });
}

void PackedBuffer::set(const ggml_tensor& tensor, const void* data, size_t offset, size_t size,
                       bool pack_it) {
  char* to = static_cast<char*>(tensor.data) + offset;
  forget(to, size);
  std::memcpy(to, data, size);
  if (!pack_it || block_type(tensor.type) == nullptr || size != ggml_nbytes(&tensor)) return;
  // ggml gives no way to fail here: what cannot be packed fails again, and is told, when it is
  // multiplied by.
  Weights ignored;
  auto error = metal_marlin::make<marlin_error>();
  for (int64_t i3 = 0; i3 < tensor.ne[3]; ++i3) {
    for (int64_t i2 = 0; i2 < tensor.ne[2]; ++i2) {
      if (pack(matrix_of(tensor, i2, i3), ignored, error) != MARLIN_OK) return;
    }
  }
}

marlin_status PackedBuffer::pack(const Matrix& matrix, Weights& out, marlin_error& error) {
  const std::lock_guard lock(mutex_);
  if (const auto found = packed_.find(matrix); found != packed_.end()) {
    out = found->second;
    return MARLIN_OK;
  }
  marlin_weights* weights = nullptr;
  try {
    const marlin_status status = pack_now(context_, matrix, weights, error);
    if (status != MARLIN_OK) return status;
    out = Weights(weights, marlin_weights_destroy);
    packed_.emplace(matrix, out);
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
    .get_tensor =
        [](ggml_backend_buffer_t, const ggml_tensor* tensor, void* data, size_t offset,
           size_t size) {
          std::memcpy(data, static_cast<const char*>(tensor->data) + offset, size);
        },
    .set_tensor_2d = nullptr,
    .get_tensor_2d = nullptr,
    .cpy_tensor = nullptr,
    .clear = [](ggml_backend_buffer_t buffer,
                uint8_t value) { packed_buffer(buffer).clear(value, buffer->size); },
    .reset = nullptr,
};

}  // namespace marlin_ggml
