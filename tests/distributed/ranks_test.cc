// How a model is split over ranks, and what ranks say when they do not belong together.
#include <gtest/gtest.h>

#include "examples/distributed/identity.h"
#include "examples/llm/ranks.h"

namespace llm {
namespace {

class Numbered final : public Ranks {
 public:
  Numbered(int64_t rank, int64_t count) : rank_(rank), count_(count) {}
  int64_t rank() const override { return rank_; }
  int64_t count() const override { return count_; }
  void sum(std::span<float>) override {}
  void gather(std::span<const float>, std::span<float>) override {}
  void broadcast(std::span<std::byte>) override {}
  void agree(const std::string&) override {}

 private:
  int64_t rank_, count_;
};

HyperParameters hyper(int64_t heads, int64_t keys, int64_t feed_forward) {
  HyperParameters h;
  h.heads = heads;
  h.key_value_heads = keys;
  h.feed_forward = feed_forward;
  return h;
}

TEST(Ranks, PartsCoverEverythingOnce) {
  for (const int64_t size : {1, 7, 96, 1536, 49152})
    for (const int64_t unit : {1, 32})
      for (int64_t ranks = 1; ranks <= 8; ++ranks) {
        if (size % unit != 0) continue;
        int64_t next = 0;
        for (int64_t rank = 0; rank < ranks; ++rank) {
          const Portion part = part_of(size, unit, rank, ranks);
          EXPECT_EQ(part.first, next);
          EXPECT_TRUE(part.first % unit == 0 || part.count == 0);
          next = part.first + part.count;
        }
        EXPECT_EQ(next, size);
      }
}

TEST(Ranks, HeadsOfKeysStayWithTheirQueries) {
  // 9 query heads in 3 groups on 2 ranks, as SmolLM2 has them.
  const HyperParameters smol = hyper(9, 3, 1536);
  const Numbered first(0, 2), second(1, 2);
  EXPECT_EQ(share_of(smol, &first).queries.count, 3);
  EXPECT_EQ(share_of(smol, &second).queries.first, 3);
  EXPECT_EQ(share_of(smol, &second).queries.count, 6);
  EXPECT_EQ(share_of(smol, &second).keys.count, 2);
  EXPECT_EQ(share_of(smol, &second).feed_forward.first, 768);
  // 4 query heads share one head of keys, on 4 ranks.
  for (int64_t rank = 0; rank < 4; ++rank) {
    const Numbered ranks(rank, 4);
    const Share share = share_of(hyper(4, 1, 2048), &ranks);
    EXPECT_EQ(share.queries.first, rank);
    EXPECT_EQ(share.keys.first, 0);
    EXPECT_EQ(share.keys.count, 1);
  }
  const Numbered five(0, 5);
  EXPECT_THROW(share_of(smol, &five), std::runtime_error);
  EXPECT_EQ(share_of(smol, nullptr).queries.count, 9);
}

}  // namespace
}  // namespace llm

namespace distributed {
namespace {

TEST(Identity, SaysWhichRankDiffersAndInWhat) {
  Identity same{.version = 0x000100, .fingerprint = 7};
  std::vector<Identity> all(3, same);
  EXPECT_EQ(first_difference(all), "");
  all[2].version = 0x000200;
  EXPECT_EQ(first_difference(all), "rank 2: expected version 0.1.0 of the library as on rank 0, found 0.2.0");
  all[2] = same;
  all[1].fingerprint = 8;
  EXPECT_EQ(first_difference(all),
            "rank 1: expected the model of rank 0 (fingerprint 0000000000000007), found another (0000000000000008)");
  all[1] = same;
  all[1].ranks = 3;
  EXPECT_EQ(first_difference(all), "rank 1: expected a file for all ranks as on rank 0, found another kind of file");
  for (size_t i = 0; i < 3; ++i) all[i].ranks = 4, all[i].rank = static_cast<uint32_t>(i);
  EXPECT_EQ(first_difference(all), "rank 0: expected a container for 3 ranks, found one for 4");
  for (size_t i = 0; i < 3; ++i) all[i].ranks = 3;
  EXPECT_EQ(first_difference(all), "");
  all[2].rank = 0;
  EXPECT_EQ(first_difference(all), "rank 2: expected the container of this rank, found that of rank 0");
}

TEST(Identity, FilesOfRanksAreNumbered) {
  EXPECT_EQ(path_of_rank("a/model-00001-of-00002.marlin", 1), "a/model-00002-of-00002.marlin");
  EXPECT_EQ(path_of_rank("a/model-00001-of-00002.gguf", 1), "a/model-00001-of-00002.gguf");
  EXPECT_EQ(path_of_rank("model.marlin", 1), "model.marlin");
  EXPECT_EQ(path_of_rank("-of-.marlin", 1), "-of-.marlin");
}

}  // namespace
}  // namespace distributed
