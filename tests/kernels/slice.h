// Some rows of a matrix, for products that are repeated by the row.
#pragma once

#include <cstddef>
#include <cstdint>

#include "metal_marlin/metal_marlin.h"
#include "reference/oracle.h"

namespace trial {

/// Rows [first, first + count) of a matrix.
inline marlin_matrix slice(marlin_matrix m, int64_t first, int64_t count) {
  const int64_t stride = m.row_stride != 0 ? m.row_stride : m.cols;
  const int64_t element = m.dtype == MARLIN_I32 ? 4 : oracle::bytes_of(m.dtype);
  if (m.data != nullptr) m.data = static_cast<std::byte*>(m.data) + first * stride * element;
  m.rows = count;
  return m;
}

}  // namespace trial
