#include "layouts/encoder.h"

#include <cinttypes>

#include "formats/format_table.h"

namespace metal_marlin {

Status expect_whole_groups(const WeightMeta& meta, const char* name) {
  if (meta.k % meta.group_size == 0 ||
      (meta.groups == 1 && meta.group_size >= meta.k && !format_row(meta.format)->fixed_group)) {
    return {};
  }
  return Status::error(MARLIN_E_SHAPE,
                       "k: %s wants whole groups of %" PRId64 ", found rows of %" PRId64, name,
                       meta.group_size, meta.k);
}

Status expect_f16_scales(const WeightMeta& meta, const char* name) {
  if (meta.scale_type == ScaleType::f16) return {};
  return Status::error(MARLIN_E_UNSUPPORTED,
                       "scales: %s holds float16, and these would overflow it or be subnormal; "
                       "compressed-tensors holds float32",
                       name);
}

void append_nibbles(const uint8_t* codes, int64_t count, std::vector<std::byte>& out) {
  int64_t i = 0;
  for (; i + 1 < count; i += 2) out.push_back(static_cast<std::byte>(codes[i] | codes[i + 1] << 4));
  if (i < count) out.push_back(static_cast<std::byte>(codes[i]));
}

}  // namespace metal_marlin
