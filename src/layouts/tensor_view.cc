#include "layouts/tensor_view.h"

#include <algorithm>
#include <cinttypes>
#include <cstdarg>
#include <cstdio>

#include "base/checked.h"

namespace metal_marlin {

Status view_error(const TensorView& view, marlin_status code, const char* format, ...) noexcept {
  char text[200];
  va_list args;
  va_start(args, format);
  std::vsnprintf(text, sizeof text, format, args);
  va_end(args);
  const int name = static_cast<int>(std::min<size_t>(view.name.size(), 80));
  const int file = static_cast<int>(std::min<size_t>(view.file.size(), 60));
  if (view.file.empty()) return Status::error(code, "%.*s: %s", name, view.name.data(), text);
  return Status::error(code, "%.*s: byte %" PRIu64 ": tensor '%.*s': %s", file, view.file.data(),
                       view.file_offset, name, view.name.data(), text);
}

bool is_float(marlin_dtype dtype) noexcept {
  return dtype == MARLIN_F32 || dtype == MARLIN_F16 || dtype == MARLIN_BF16;
}

int64_t rows_of(const TensorView& view) noexcept {
  Checked rows = 1;
  for (size_t i = 0; i + 1 < view.dims.size(); ++i) rows = rows * Checked(view.dims[i]);
  // Only a tensor without elements can have a product that does not fit.
  return static_cast<int64_t>(rows.at_most(INT64_MAX).value_or(0));
}
int64_t cols_of(const TensorView& view) noexcept {
  return view.dims.empty() ? 1 : view.dims.back();
}

}  // namespace metal_marlin
