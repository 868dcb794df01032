// Matrices of a hostile caller. What they say of their sizes is true, as a caller's memory must be: a block ends where its
// matrix ends, so that AddressSanitizer sees the first byte beyond. A matrix that is too large for that lies in a small
// marlin_buffer, whose bounds the library has to check.
#pragma once

#include <memory>
#include <vector>

#include "fuzz/target.h"
#include "metal_marlin/metal_marlin.hpp"

namespace metal_marlin::fuzz {

/// 0 for an unknown dtype.
inline uint64_t bits_of(marlin_dtype dtype) {
  static constexpr uint8_t kBits[] = {0, 32, 16, 16, 8, 32, 32, 4, 8, 8, 8, 16, 64};
  return dtype >= 0 && dtype < static_cast<int32_t>(std::size(kBits)) ? kBits[dtype] : 0;
}

/// The context of all calls of a target: the portable kernels, which are instrumented, on the calling thread.
inline const context& the_context() {
  static const context made = [] {
    (void)setenv("METAL_MARLIN_ISA", "generic", 1);
    auto desc = make<marlin_context_desc>();
    desc.backend = MARLIN_BACKEND_CPU;
    desc.threads = 1;
    return context(desc);
  }();
  return made;
}

class Operands {
 public:
  /// A matrix of usually this shape and type, absent if `present` is false and the input agrees.
  marlin_matrix take(Reader& in, int64_t rows, int64_t cols, marlin_dtype dtype, bool present = true) {
    const uint8_t oddities = in.byte();
    if (oddities < 128) return oddities % 2 == (present ? 0 : 1) ? plain(rows, cols, dtype, in) : marlin_matrix{};
    marlin_matrix m{};
    m.rows = in.number(rows);
    m.cols = in.number(cols);
    m.row_stride = in.number(0);
    m.dtype = in.number32(dtype);
    m.offset_bytes = static_cast<uint64_t>(in.number(0));
    place(m, in);
    // Whether an address is of the host or of a marlin_buffer is true, too: no library can tell.
    const marlin_memory memory = in.byte() >= 224 ? in.number32(MARLIN_MEM_HOST) : MARLIN_MEM_HOST;
    if (memory != MARLIN_MEM_HOST && memory != MARLIN_MEM_BUFFER) m.memory = memory;
    return m;
  }
  /// All bytes that results could be written to.
  const std::vector<uint8_t> snapshot() const {
    std::vector<uint8_t> all;
    for (const Block& block : blocks_) all.insert(all.end(), block.bytes.get(), block.bytes.get() + block.size);
    return all;
  }

 private:
  static constexpr uint64_t kMost = 1 << 14;
  struct Block {
    std::unique_ptr<uint8_t[]> bytes;
    size_t size;
  };

  marlin_matrix plain(int64_t rows, int64_t cols, marlin_dtype dtype, Reader& in) {
    marlin_matrix m{};
    m.rows = rows;
    m.cols = cols;
    m.dtype = dtype;
    place(m, in);
    return m;
  }
  /// Bytes from the first to the last, or more than kMost.
  static uint64_t length(const marlin_matrix& m) {
    const int64_t stride = m.row_stride == 0 ? m.cols : m.row_stride;
    if (m.rows <= 0 || m.cols <= 0 || stride < 0) return 0;
    if (m.rows > 4096 || m.cols > 65536 || stride > 65536 || m.offset_bytes > kMost) return kMost + 1;
    return m.offset_bytes + ((static_cast<uint64_t>((m.rows - 1) * stride + m.cols) * bits_of(m.dtype)) + 7) / 8;
  }
  void place(marlin_matrix& m, Reader& in) {
    const uint64_t bytes = length(m);
    if (bytes > kMost) {
      m.data = buffer_.get();
      m.memory = MARLIN_MEM_BUFFER;
      return;
    }
    const uint8_t where = in.byte();
    if (where >= 240 && !blocks_.empty()) {  // where another matrix is, if it fits
      const Block& other = blocks_[where % blocks_.size()];
      if (bytes <= other.size) {
        m.data = other.bytes.get() + in.choice(static_cast<uint32_t>(other.size - bytes) + 1);
        return;
      }
    }
    const size_t shift = where >= 232 && where < 240 ? where % 8 : 0;
    Block block{std::make_unique<uint8_t[]>(bytes + shift), bytes + shift};
    uint32_t state = where;
    for (size_t i = 0; i < block.size && where != 0; ++i)
      block.bytes[i] = static_cast<uint8_t>((state = state * 1664525u + 1013904223u) >> 24);
    m.data = block.bytes.get() + shift;
    blocks_.push_back(std::move(block));
  }

  std::vector<Block> blocks_;
  const buffer buffer_{the_context(), 512};
};

/// Gives a descriptor a struct_size that is usually right.
template <class T>
void set_size(T& desc, Reader& in) {
  const uint8_t odd = in.byte();
  desc.struct_size = odd < 250 ? static_cast<uint32_t>(sizeof desc) : std::min<uint32_t>(in.byte() * 4u, sizeof desc);
}

}  // namespace metal_marlin::fuzz
