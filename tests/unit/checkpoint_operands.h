// Operands in a test's own memory, as a caller of the C ABI gives them.
#pragma once

#include "checkpoint_files.h"
#include "layouts/source.h"
#include "must.h"
#include "test.h"

namespace metal_marlin::testing {

/// Owns the bytes behind a view.
struct Operand {
  template <class T>
  Operand(const char* name, marlin_dtype dtype, std::vector<int64_t> dims, const std::vector<T>& values)
      : bytes(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)) {
    view.name = name;
    view.dtype = dtype;
    view.row_stride = dims.empty() ? 1 : dims.back();
    view.dims = std::move(dims);
    view.bytes = bytes.size();
    view.data = reinterpret_cast<const std::byte*>(bytes.data());
  }
  Operand(const Operand&) = delete;
  operator const TensorView&() const { return view; }
  std::string bytes;
  TensorView view;
};

inline constexpr uint16_t kHalf = 0x3800, kOne = 0x3c00;  // float16

/// A block of GGUF of `size` bytes: `head`, then zeros.
inline std::vector<uint8_t> block(std::initializer_list<int> head, size_t size) {
  std::vector<uint8_t> bytes(size, 0);
  std::copy(head.begin(), head.end(), bytes.begin());
  return bytes;
}

inline std::vector<float> decode(const LayoutOperands& o) { return must(decode_all(*must(make_source(o)), 3)); }

inline Status error_of(const LayoutOperands& o) {
  const auto source = make_source(o);
  if (!source.ok()) return source.status();
  return decode_all(*source.value()).status();
}

inline LayoutOperands operands(marlin_layout layout, marlin_format format, int64_t n, int64_t k, int64_t group,
                               const TensorView& values, const TensorView& scales = {}, const TensorView& zeros = {}) {
  LayoutOperands o;
  o.layout = layout;
  o.format = format;
  o.n = n;
  o.k = k;
  o.group_size = group;
  o.values = values;
  o.scales = scales;
  o.zeros = zeros;
  return o;
}

}  // namespace metal_marlin::testing
