// A buffer of host memory that holds tensors as ggml wrote them and, of each matrix of quantized
// blocks that products read, a packed copy.
#pragma once

#include <metal_marlin/metal_marlin.hpp>

#include <compare>
#include <map>
#include <memory>
#include <mutex>

#include "ggml_interface.h"

namespace marlin_ggml {

/// W[n, k] in blocks, rows `row_stride` bytes apart.
struct Matrix {
  const char* data;
  ggml_type type;
  int64_t n, k;
  size_t row_stride;
  auto operator<=>(const Matrix&) const = default;
  const char* end() const {
    return data + (n - 1) * static_cast<int64_t>(row_stride) + ggml_row_size(type, k);
  }
};

/// Blocks that marlin_weights_pack takes as they are.
struct BlockType {
  ggml_type type;
  marlin_format format;
  uint32_t flags;
  int64_t elements;
  size_t bytes;
};
inline constexpr uint32_t kAdditive = MARLIN_PACK_ADDITIVE_ZEROS;
inline constexpr uint32_t kTwoLevel = MARLIN_PACK_TWO_LEVEL_SCALES;
inline constexpr BlockType kBlockTypes[] = {
    {GGML_TYPE_Q4_0, MARLIN_INT4, 0, 32, 18},
    {GGML_TYPE_Q4_1, MARLIN_INT4, kAdditive, 32, 20},
    {GGML_TYPE_Q5_0, MARLIN_INT5, 0, 32, 22},
    {GGML_TYPE_Q5_1, MARLIN_INT5, kAdditive, 32, 24},
    {GGML_TYPE_Q8_0, MARLIN_INT8, 0, 32, 34},
    {GGML_TYPE_Q2_K, MARLIN_INT2, kAdditive | kTwoLevel, 256, 84},
    {GGML_TYPE_Q3_K, MARLIN_INT3, kTwoLevel, 256, 110},
    {GGML_TYPE_Q4_K, MARLIN_INT4, kAdditive | kTwoLevel, 256, 144},
    {GGML_TYPE_Q5_K, MARLIN_INT5, kAdditive | kTwoLevel, 256, 176},
    {GGML_TYPE_Q6_K, MARLIN_INT6, kTwoLevel, 256, 210},
    {GGML_TYPE_IQ4_NL, MARLIN_IQ4, 0, 32, 18},
    {GGML_TYPE_IQ4_XS, MARLIN_IQ4, kTwoLevel, 256, 136},
    {GGML_TYPE_MXFP4, MARLIN_MXFP4, 0, 32, 17},
    {GGML_TYPE_NVFP4, MARLIN_NVFP4, 0, 64, 36}};
/// NULL for all other types.
const BlockType* block_type(ggml_type type);

using Weights = std::shared_ptr<marlin_weights>;

/// Any number of threads may use one at once; what a thread reads must not be written meanwhile, as
/// in all of ggml.
class PackedBuffer {
 public:
  /// NULL when there is no memory.
  static std::unique_ptr<PackedBuffer> create(marlin_context* context, size_t size);

  char* base() const { return memory_.get(); }
  void clear(uint8_t value, size_t size);
  /// With `pack`, packs what a call writes whole; the rest is packed when it is first multiplied
  /// by.
  void set(const ggml_tensor& tensor, const void* data, size_t offset, size_t size, bool pack);
  void fill(const ggml_tensor& tensor, uint8_t value, size_t offset, size_t size);
  /// The packed matrix: from memory, or packed now. On failure `error` says why.
  marlin_status pack(const Matrix& matrix, Weights& out, marlin_error& error);
  /// A graph writes there, as it does into a cache of keys: from now on the bytes are no weights.
  void note_written(const ggml_tensor& tensor);
  bool is_written(const ggml_tensor& tensor);

 private:
  struct Free {
    void operator()(char* p) const { std::free(p); }
  };
  PackedBuffer(marlin_context* context, char* memory) : context_(context), memory_(memory) {}
  void forget(const char* begin, size_t size);

  marlin_context* context_;
  std::unique_ptr<char, Free> memory_;
  std::mutex mutex_;
  std::map<Matrix, Weights> packed_;
  std::map<const char*, const char*> written_;  // begin and end of what graphs write
};

/// The matrix at [i3][i2] of a tensor of blocks.
Matrix matrix_of(const ggml_tensor& tensor, int64_t i2, int64_t i3);
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
