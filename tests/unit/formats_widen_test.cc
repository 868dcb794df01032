// Widened weights have the same values, bit for bit, in forms that every backend knows.
#include "formats/widen.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "formats/decode.h"
#include "problem/memory_source.h"

namespace metal_marlin {
namespace {

std::vector<float> decoded(const WeightSource& source, int64_t first, int64_t count) {
  Stripe stripe;
  EXPECT_TRUE(source.read(first, count, stripe).ok());
  std::vector<float> values(static_cast<size_t>(count * source.meta().k));
  decode_rows(source.meta(), stripe, first, count, values.data());
  return values;
}

TEST(WidenedSource, KeepsEveryValue) {
  std::mt19937 random(20261122);
  int narrow = 0;
  for (const FormatRow& row : format_table())
    for_each_kind(row, [&](WeightMeta meta) {
      for (const int64_t group : {16, 32}) {
        meta.n = 5;
        meta.k = 300;
        meta.group_size = row.fixed_group ? row.default_group : group;
        set_groups(meta, meta.sparse || meta.has_two_level_scales() ? Order::plain : Order::shuffled, random);
        MemorySource source;
        source.mutable_meta() = meta;
        fill_randomly(source, random, false);
        if (!is_narrow(meta) || meta.has_nested_scales()) continue;  // formats_nested_test: they are rounded
        ++narrow;
        SCOPED_TRACE(testing::Message() << row.name << " " << scale_type_name(meta.scale_type) << " zeros "
                                        << static_cast<int>(meta.zero_kind));
        const WidenedSource wide(source);
        ASSERT_TRUE(check_meta(wide.meta()).ok()) << check_meta(wide.meta()).message();
        EXPECT_FALSE(is_narrow(wide.meta()));
        for (const auto& [first, count] : {std::pair<int64_t, int64_t>{0, 5}, {2, 2}}) {
          const std::vector<float> expected = decoded(source, first, count), found = decoded(wide, first, count);
          for (size_t i = 0; i < expected.size(); ++i) {
            if (std::isnan(expected[i]) && std::isnan(found[i])) continue;
            ASSERT_EQ(std::bit_cast<uint32_t>(expected[i]), std::bit_cast<uint32_t>(found[i])) << i;
          }
        }
      }
    });
  EXPECT_GT(narrow, 50);
}

}  // namespace
}  // namespace metal_marlin
