// The table of layouts (layouts.inc): all properties of a layout that do not depend on data.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/status.h"
#include "formats/weights.h"
#include "layouts/encoder.h"
#include "layouts/operands.h"

namespace metal_marlin {

/// Builds the source of one layout. It relies on read_layout(), which compares the operands with
/// the row of the layout first.
using LayoutReader = Result<std::unique_ptr<WeightSource>> (*)(const LayoutOperands& operands,
                                                               Depth depth);

/// The operands and options that a layout may have: bits of LayoutRow::takes.
struct Takes {
  static constexpr uint32_t callers = 1;  ///< memory of a caller of the C ABI
  static constexpr uint32_t scales = 2, zeros = 4, group_index = 8, sparse_meta = 16;  ///< operands
  static constexpr uint32_t additive_zeros = 32;  ///< MARLIN_PACK_ADDITIVE_ZEROS
  static constexpr uint32_t zero_f = 64;          ///< marlin_pack_desc::gptq_zero_f
  static constexpr uint32_t two_level = 128;      ///< MARLIN_PACK_TWO_LEVEL_SCALES
};

enum class LayoutId : uint8_t {
#define MARLIN_LAYOUT(id, ...) id,
#include "layouts/layouts.inc"
};

/// The columns are described in layouts.inc.
struct LayoutRow {
  marlin_layout number;
  const char* name;
  LayoutReader read;
  LayoutEncoder (*encoder)();  ///< null: it is not written
  const char* holds;
  uint32_t formats, takes;

  bool has_place(uint32_t what) const { return (takes & what) == what; }
  bool can_hold(marlin_format format) const {
    return format >= 0 && format < 32 && (formats >> format & 1u) != 0;
  }
};

/// All rows, in the order of LayoutId.
std::span<const LayoutRow> layout_table();
const LayoutRow& layout_row(LayoutId id);
/// The row of a number that a caller gives (AUTO means ROWS), or null.
const LayoutRow* caller_layout(marlin_layout number);
/// The largest of these numbers.
marlin_layout last_layout();

/// The source of operands in this layout. An operand that the layout does not have is an error.
Result<std::unique_ptr<WeightSource>> read_layout(const LayoutRow& row,
                                                  const LayoutOperands& operands, Depth depth);

// The readers and encoders, each in its layout's file.
#define MARLIN_LAYOUT(id, ...) \
  Result<std::unique_ptr<WeightSource>> read_##id(const LayoutOperands& operands, Depth depth);
#define MARLIN_WRITTEN_LAYOUT(id, ...) \
  MARLIN_LAYOUT(id, )                  \
  LayoutEncoder id##_encoder();
#include "layouts/layouts.inc"

}  // namespace metal_marlin
