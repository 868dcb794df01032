#include "backends/cpu/packed_memory.h"
#include "test.h"

#include <sys/mman.h>
#include <unistd.h>

#include "under_sanitizer.h"

namespace metal_marlin::cpu {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

Block make(PackedMemory& memory, size_t size) { return Block::allocate(memory.allocator(), size).take(); }

/// Every byte of `block` is `value`.
bool holds(const Block& block, int value) {
  return std::all_of(block.data(), block.data() + block.size(), [&](std::byte b) { return b == std::byte(value); });
}

TEST(PackedMemory, BlocksOfAllSizesShareNothing) {
  PackedMemory memory;
  std::vector<Block> blocks;
  for (const size_t size : {size_t{1}, size_t{64}, size_t{100000}, 3 * kMiB, 4 * kMiB - 64, 4 * kMiB, 5 * kMiB + 64, kMiB,
                            4 * kMiB - 64, 4 * kMiB - 64, 4 * kMiB - 64, 4 * kMiB - 64, size_t{64}}) {
    blocks.push_back(make(memory, size));
    ASSERT_GE(blocks.back().size(), size);
    std::memset(blocks.back().data(), static_cast<int>(blocks.size()), blocks.back().size());
  }
  for (size_t i = 0; i < blocks.size(); ++i) EXPECT_TRUE(holds(blocks[i], static_cast<int>(i + 1))) << i;
  // Freed in an order that is not theirs, while others stay.
  for (const size_t i : {4u, 0u, 12u, 7u}) blocks[i] = Block();
  for (const size_t i : {1u, 2u, 3u, 5u, 6u, 8u, 9u, 10u, 11u}) EXPECT_TRUE(holds(blocks[i], static_cast<int>(i + 1))) << i;
}

/// Rounded up to whole pages, such a size would be small again.
TEST(PackedMemory, SizesThatNoMemoryHasAreRefused) {
  PackedMemory memory;
  for (const Allocator& allocator : {memory.allocator(), scratch_memory()})
    for (const size_t size : {SIZE_MAX - 63, SIZE_MAX - kMiB + 1, size_t{PTRDIFF_MAX} - 62})
      EXPECT_EQ(allocator.alloc(allocator.user, size, 64), nullptr) << size;
}

TEST(PackedMemory, BlocksOutliveIt) {
  auto memory = std::make_unique<PackedMemory>();
  Block small = make(*memory, kMiB), large = make(*memory, 6 * kMiB);
  memory.reset();
  std::memset(small.data(), 1, small.size());
  std::memset(large.data(), 2, large.size());
  EXPECT_TRUE(holds(small, 1) && holds(large, 2));
}

TEST(PackedMemory, ThreadsTakeAndGiveBackAtOnce) {
  PackedMemory memory;
  const auto work = [&](size_t seed) {
    std::vector<Block> mine(8);
    for (size_t i = 0; i < 400; ++i) {
      Block& block = mine[i % mine.size()];
      if (block.data() != nullptr) {
        ASSERT_TRUE(holds(block, static_cast<int>(seed)));
      }
      block = make(memory, 64 + (i * 7919 + seed * 104729) % 200000);
      std::memset(block.data(), static_cast<int>(seed), block.size());
    }
  };
  std::vector<std::thread> threads;
  for (size_t seed = 1; seed <= 4; ++seed) threads.emplace_back(work, seed);
  for (std::thread& thread : threads) thread.join();
}

TEST(PackedMemory, TooMuchIsAnError) {
  PackedMemory memory;
  for (const size_t size : {size_t{PTRDIFF_MAX}, size_t{PTRDIFF_MAX} - 63, size_t{1} << 60})
    EXPECT_EQ(Block::allocate(memory.allocator(), size).status().code(), MARLIN_E_MEMORY) << size;
}

#if defined(__linux__) && !defined(MARLIN_UNDER_ASAN)
/// Pages of [p, p + size) that are in memory, p on a page.
size_t resident(const std::byte* p, size_t size) {
  std::vector<unsigned char> pages(size / static_cast<size_t>(sysconf(_SC_PAGESIZE)));
  EXPECT_EQ(mincore(const_cast<std::byte*>(p), size, pages.data()), 0);
  return static_cast<size_t>(std::count_if(pages.begin(), pages.end(), [](unsigned char page) { return (page & 1) != 0; }));
}

TEST(PackedMemory, PagesOfAFreedBlockGoBackWhileItsSlabStays) {
  PackedMemory memory;
  const Block first = make(memory, kMiB);
  Block middle = make(memory, 3 * kMiB);
  const Block last = make(memory, kMiB);
  std::memset(first.data(), 1, first.size());
  std::memset(middle.data(), 2, middle.size());
  std::memset(last.data(), 3, last.size());
  const auto address = reinterpret_cast<uintptr_t>(middle.data());
  const std::byte* const inside = middle.data() + (kMiB - address % kMiB);  // a MiB of it that begins on a page
  EXPECT_NE(resident(inside, kMiB), 0u);
  middle = Block();
  EXPECT_EQ(resident(inside, kMiB), 0u);
  EXPECT_TRUE(holds(first, 1) && holds(last, 3));
}
#endif

}  // namespace
}  // namespace metal_marlin::cpu
