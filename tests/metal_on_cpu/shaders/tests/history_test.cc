// The order of accesses in race.h, and that the cells of history.h find what one cell for each byte would.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "runtime/history.h"

namespace metal_on_cpu {
namespace {

Race race(Cell& cell, const Order& order, bool write) {
  const Race found = cell.conflict(order, write).race;
  cell.record(order, write);
  return found;
}

TEST(Order, OfReadersAndAWriter) {
  const uint32_t simdgroup_sync[2] = {10, 10};
  const auto at = [&](uint32_t thread, uint32_t group = 1) { return Order{12, thread, group, 10, simdgroup_sync}; };
  Cell c{};
  EXPECT_EQ(race(c, at(3), false), Race::kNone);
  EXPECT_EQ(race(c, at(3), true), Race::kNone);  // its own
  EXPECT_EQ(race(c, at(4), false), Race::kWithWrite);
  Cell readers{};
  EXPECT_EQ(race(readers, at(1), false), Race::kNone);
  EXPECT_EQ(race(readers, at(2), false), Race::kNone);
  EXPECT_EQ(race(readers, at(2), true), Race::kWithRead);  // 1 read it as well
  Cell groups{};
  EXPECT_EQ(race(groups, at(0, 1), true), Race::kNone);
  EXPECT_EQ(race(groups, at(0, 2), false), Race::kWithWrite);
  Cell old{};
  EXPECT_EQ(race(old, Order{9, 40, 1, 5, simdgroup_sync}, true), Race::kNone);
  EXPECT_EQ(race(old, at(3), false), Race::kNone);  // a threadgroup barrier lies between
}

struct Found {
  Race race = Race::kNone;
  uint32_t thread = 0, group = 0;
  bool unwritten = false;

  void look(Cell& cell, const Order& order, bool write) {
    unwritten = unwritten || !cell.written();
    if (race == Race::kNone) {
      const Conflict c = cell.conflict(order, write);
      race = c.race, thread = c.thread, group = c.group;
    }
    cell.record(order, write);
  }
  bool operator==(const Found&) const = default;
};

// Random accesses of random sizes, mostly aligned, by random threads, with barriers now and then.
TEST(History, IsThatOfEachByte) {
  constexpr size_t kBytes = 61;
  for (uint32_t seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    const History history(kBytes);
    std::vector<Cell> bytes(kBytes);
    uint32_t now = 1, group = 1, group_sync = 1, simdgroup_sync[3] = {1, 1, 1};
    for (int i = 0; i < 300; ++i) {
      if (random() % 8 == 0) simdgroup_sync[random() % 3] = ++now;
      if (random() % 16 == 0) {
        group_sync = ++now;
        for (uint32_t& time : simdgroup_sync) time = now;
        if (random() % 4 == 0) group++;
      }
      if (random() % 64 == 0) {
        const size_t forgotten = random() % 5 * 16;
        history.forget(forgotten);
        for (size_t b = 0; b < std::min((forgotten / 8 + 1) * 8, kBytes); ++b) bytes[b] = Cell();
      }
      const size_t size = size_t{1} << random() % 5, any = random() % (kBytes - size + 1);
      const size_t offset = random() % 8 == 0 ? any : any / size * size;
      const bool write = random() % 2;
      const Order order{now, static_cast<uint32_t>(random() % 80), group, group_sync, simdgroup_sync};
      Found found, wanted;
      history.visit(offset, size, [&](Cell& c) { found.look(c, order, write); });
      for (size_t b = offset; b < offset + size; ++b) wanted.look(bytes[b], order, write);
      ASSERT_EQ(found, wanted) << "seed " << seed << ", access " << i << ": " << size << " bytes at " << offset;
    }
  }
}

TEST(History, LooksAtOneCellForWhatIsTouchedAsAWhole) {
  const History history(64);
  const auto cells = [&](size_t offset, size_t bytes) {
    int n = 0;
    history.visit(offset, bytes, [&](Cell&) { n++; });
    return n;
  };
  EXPECT_EQ(cells(0, 16), 2);
  EXPECT_EQ(cells(4, 4), 1);
  EXPECT_EQ(cells(0, 16), 3);  // the first block now has two halves
  EXPECT_EQ(cells(33, 1), 1);
  EXPECT_EQ(cells(32, 4), 4);
}

}  // namespace
}  // namespace metal_on_cpu
