// A buffer of host memory that holds tensors as ggml wrote them or, for weights that products read,
// a packed copy in their place.
#pragma once

#include <metal_marlin/metal_marlin.hpp>

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "file_rows.h"
#include "ggml_interface.h"
#include "packing.h"

namespace marlin_ggml {

/// Any number of threads may use one at once; what a thread reads must not be written meanwhile, as
/// in all of ggml.
class PackedBuffer {
 public:
  /// NULL when there is no memory.
  static std::unique_ptr<PackedBuffer> create(marlin_context* context, size_t size);
  ~PackedBuffer();
  PackedBuffer(const PackedBuffer&) = delete;

  char* base() const { return memory_; }
  void clear(uint8_t value);
  /// With `weights`, a tensor that one call writes whole is packed, and the packed copy alone
  /// stays; the rest is packed when it is first multiplied by.
  void set(const ggml_tensor& tensor, const void* data, size_t offset, size_t size, bool weights);
  void get(const ggml_tensor& tensor, void* data, size_t offset, size_t size);
  void fill(const ggml_tensor& tensor, uint8_t value, size_t offset, size_t size);
  /// The packed matrix: what there is, or packed now. On failure `error` says why.
  marlin_status pack(const Matrix& matrix, Weights& out, marlin_error& error);
  /// Somebody else reads the bytes of this tensor where they lie. From now on they lie there.
  void lay_out(const ggml_tensor& tensor);
  /// A graph writes there, as it does into a cache of keys: from now on the bytes are no weights.
  void note_written(const ggml_tensor& tensor);
  bool is_written(const ggml_tensor& tensor);

 private:
  struct Packed {
    Weights weights;
    bool alone = false;  // the bytes are in the packed copy and not in memory_
  };
  PackedBuffer(marlin_context* context, char* memory, size_t size)
      : context_(context), memory_(memory), size_(size) {}
  // Of [begin, end), with mutex_ held.
  void lay_out(const char* begin, const char* end);
  void forget(const char* begin, const char* end);
  bool is_written(const char* begin, const char* end) const;
  bool pack_alone(const ggml_tensor& tensor, const char* data);

  marlin_context* context_;
  char* memory_;
  size_t size_;
  std::mutex mutex_;
  std::map<Matrix, Packed> packed_;
  std::map<const char*, const char*> written_;  // begin and end of what graphs write
  std::vector<PartOfFile> packed_from_;
};

/// Where a tensor's memory lies; NULL before it is allocated.
inline ggml_backend_buffer_t buffer_of(const ggml_tensor& tensor) {
  return tensor.view_src != nullptr ? tensor.view_src->buffer : tensor.buffer;
}
/// The functions that make ggml's buffer of a PackedBuffer, its context.
extern const BufferFunctions kBufferFunctions;
inline PackedBuffer& packed_buffer(ggml_backend_buffer_t buffer) {
  return *static_cast<PackedBuffer*>(buffer->context);
}

/// A multiple of every kernel's vectors, and a cache line.
inline constexpr size_t kAlignment = 64;

}  // namespace marlin_ggml
