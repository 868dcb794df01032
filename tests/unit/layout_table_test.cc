// The table of layouts, and the recognizers that refer to it.
#include "layouts/layout_table.h"

#include "checkpoints/recognizers/recognizers.h"
#include "test.h"

namespace metal_marlin {
namespace {

LayoutId id_of(const LayoutRow& row) { return static_cast<LayoutId>(&row - layout_table().data()); }

TEST(LayoutTable, EveryNumberOfTheHeaderHasOneRow) {
  EXPECT_EQ(last_layout(), MARLIN_LAYOUT_MARLIN_24);
  for (marlin_layout number = MARLIN_LAYOUT_AUTO + 1; number <= last_layout(); ++number) {
    const auto is_it = [&](const LayoutRow& row) { return row.number == number && row.has_place(Takes::callers); };
    const auto rows = layout_table();
    EXPECT_EQ(std::count_if(rows.begin(), rows.end(), is_it), 1) << number;
    ASSERT_NE(caller_layout(number), nullptr) << number;
    EXPECT_EQ(caller_layout(number)->number, number);
  }
  EXPECT_EQ(caller_layout(MARLIN_LAYOUT_AUTO), &layout_row(LayoutId::rows));
  EXPECT_EQ(caller_layout(-1), nullptr);
  EXPECT_EQ(caller_layout(last_layout() + 1), nullptr);
}

TEST(LayoutTable, EveryLayoutOfFilesHasARecognizer) {
  for (const LayoutRow& row : layout_table()) {
    const auto all = recognizers();
    const bool found = std::any_of(all.begin(), all.end(), [&](const Recognizer& recognizer) {
      const auto layouts = recognizer.layouts;
      return std::find(layouts.begin(), layouts.end(), id_of(row)) != layouts.end();
    });
    // No file announces K8N: callers alone have it.
    EXPECT_EQ(found, id_of(row) != LayoutId::k8n) << row.name;
  }
}

TEST(LayoutTable, FormatsAndOperandsWithoutAPlaceAreErrors) {
  const std::byte byte{};
  for (const LayoutRow& row : layout_table()) {
    LayoutOperands o;
    o.layout = row.number;
    o.n = o.k = 64;
    o.format = id_of(row) == LayoutId::bitsandbytes ? MARLIN_FORMAT_NF4 : MARLIN_FORMAT_INT4;
    ASSERT_TRUE(row.can_hold(o.format)) << row.name;
    const auto expect_refused = [&](TensorView LayoutOperands::* operand, uint32_t place, const char* name) {
      if (row.has_place(place)) return;
      LayoutOperands with = o;
      (with.*operand).name = name;
      (with.*operand).data = &byte;
      const auto source = read_layout(row, with, Depth::header);
      ASSERT_FALSE(source.ok()) << row.name << " " << name;
      EXPECT_EQ(source.status().message(), std::string(name) + ": expected none in this layout") << row.name;
    };
    expect_refused(&LayoutOperands::scales, Takes::scales, "scales");
    expect_refused(&LayoutOperands::zeros, Takes::zeros, "zeros");
    expect_refused(&LayoutOperands::group_index, Takes::group_index, "group_index");
    expect_refused(&LayoutOperands::sparse_meta, Takes::sparse_meta, "sparse_meta");
    LayoutOperands other = o;
    other.format = MARLIN_FORMAT_INT8;
    if (row.can_hold(other.format) || row.holds == nullptr) continue;
    EXPECT_EQ(read_layout(row, other, Depth::header).status().code(), MARLIN_E_UNSUPPORTED) << row.name;
  }
}

}  // namespace
}  // namespace metal_marlin
