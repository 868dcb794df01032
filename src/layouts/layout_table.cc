#include "layouts/layout_table.h"

#include <algorithm>

#include "formats/format_table.h"

namespace metal_marlin {
namespace {

constexpr uint32_t kInt4 = 1u << MARLIN_FORMAT_INT4, kMxfp4 = 1u << MARLIN_FORMAT_MXFP4,
                   kNvfp4 = 1u << MARLIN_FORMAT_NVFP4, kInt8 = 1u << MARLIN_FORMAT_INT8,
                   kFourBits = kInt4 | 1u << MARLIN_FORMAT_FP4 | kMxfp4 | kNvfp4,
                   kIntegers = kInt4 | kInt8 | 1u << MARLIN_FORMAT_INT2 | 1u << MARLIN_FORMAT_INT3 |
                               1u << MARLIN_FORMAT_INT5 | 1u << MARLIN_FORMAT_INT6,
                   kUint8 = 1u << MARLIN_FORMAT_UINT8, kFp8 = 1u << MARLIN_FORMAT_FP8,
                   kGptq =
                       kInt4 | kInt8 | kUint8 | 1u << MARLIN_FORMAT_INT2 | 1u << MARLIN_FORMAT_INT3,
                   kCodebooks = 1u << MARLIN_FORMAT_NF4 | 1u << MARLIN_FORMAT_CODEBOOK4,
                   kIq4 = 1u << MARLIN_FORMAT_IQ4,
                   kAnyFormat = kFourBits | kIntegers | kIq4 | kUint8 | kFp8 | kCodebooks;

constexpr LayoutRow kLayouts[] = {
#define MARLIN_LAYOUT(id, number, name, holds, formats, takes) \
  {number, name, read_##id, nullptr, holds, formats, takes},
#define MARLIN_WRITTEN_LAYOUT(id, number, name, holds, formats, takes) \
  {number, name, read_##id, id##_encoder, holds, formats, takes},
#include "layouts/layouts.inc"
};

Status check_row(const LayoutRow& row, const LayoutOperands& o) {
  if (!row.can_hold(o.format) && format_row(o.format) != nullptr &&
      format_row(o.format)->code_bits > 8) {
    return Status::error(MARLIN_E_ARGUMENT, "values: %s takes floats, found codes",
                         format_name(o.format));
  }
  if (!row.has_place(Takes::sparse_meta)) MARLIN_RETURN_IF_ERROR(expect_absent(o.sparse_meta));
  if (row.holds != nullptr && !row.can_hold(o.format)) {
    return Status::error(MARLIN_E_UNSUPPORTED, "layout: %s, found %s", row.holds,
                         format_name(o.format));
  }
  const bool additive = (o.flags & MARLIN_PACK_ADDITIVE_ZEROS) != 0;
  if (additive && !row.has_place(Takes::additive_zeros))
    return Status::error(MARLIN_E_ARGUMENT, "flags: %s has no additive zeros", row.name);
  if (!row.has_place(Takes::scales)) MARLIN_RETURN_IF_ERROR(expect_absent(o.scales));
  if (!row.has_place(Takes::zeros)) MARLIN_RETURN_IF_ERROR(expect_absent(o.zeros));
  return row.has_place(Takes::group_index) ? Status() : expect_absent(o.group_index);
}

}  // namespace

std::span<const LayoutRow> layout_table() { return kLayouts; }

const LayoutRow& layout_row(LayoutId id) { return kLayouts[static_cast<size_t>(id)]; }

const LayoutRow* caller_layout(marlin_layout number) {
  if (number == MARLIN_LAYOUT_AUTO) return &layout_row(LayoutId::rows);
  for (const LayoutRow& row : kLayouts) {
    if (row.number == number && row.has_place(Takes::callers)) return &row;
  }
  return nullptr;
}

marlin_layout last_layout() {
  marlin_layout last = MARLIN_LAYOUT_AUTO;
  for (const LayoutRow& row : kLayouts) last = std::max(last, row.number);
  return last;
}

Result<std::unique_ptr<WeightSource>> read_layout(const LayoutRow& row, const LayoutOperands& o,
                                                  Depth depth) {
  MARLIN_RETURN_IF_ERROR(check_row(row, o));
  return row.read(o, depth);
}

}  // namespace metal_marlin
