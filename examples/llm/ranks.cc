#include "ranks.h"

#include <stdexcept>

namespace llm {

Portion part_of(int64_t size, int64_t unit, int64_t rank, int64_t ranks) {
  const int64_t units = size / unit;
  const auto border = [&](int64_t r) { return r == ranks ? size : units * r / ranks * unit; };
  return {border(rank), border(rank + 1) - border(rank)};
}

Portion even_part(int64_t size, int64_t least, int64_t rank, int64_t ranks, const char* what) {
  for (const int64_t unit : {int64_t{256}, int64_t{128}, int64_t{64}, int64_t{32}, least})
    if (size % unit == 0 && size / unit >= ranks) return part_of(size, unit, rank, ranks);
  throw std::runtime_error("ranks: expected at most " + std::to_string(size / least) + " for " +
                           std::to_string(size) + " " + what + ", found " + std::to_string(ranks));
}

Share share_of(const HyperParameters& hyper, const Ranks* ranks) {
  Share all{
      {0, hyper.heads}, {0, hyper.key_value_heads}, {0, hyper.feed_forward}, {0, hyper.experts}};
  if (ranks == nullptr) return all;
  const int64_t rank = ranks->rank(), count = ranks->count();
  const int64_t group = hyper.heads / hyper.key_value_heads;  // query heads that share keys
  Share share = all;
  if (count <= hyper.key_value_heads) {
    share.keys = part_of(hyper.key_value_heads, 1, rank, count);
    share.queries = {share.keys.first * group, share.keys.count * group};
  } else {
    const int64_t each = hyper.heads / count;
    if (each == 0 || hyper.heads % count != 0 || group % each != 0)
      throw std::runtime_error("ranks: expected at most " + std::to_string(hyper.key_value_heads) +
                               ", or as many as divide " + std::to_string(hyper.heads) +
                               " heads in groups of " + std::to_string(group) + ", found " +
                               std::to_string(count));
    share.queries = {rank * each, each};
    share.keys = {share.queries.first / group, 1};
  }
  if (hyper.architecture.mixtures) {
    if (hyper.experts < count)
      throw std::runtime_error("ranks: expected at most " + std::to_string(hyper.experts) +
                               " for as many experts, found " + std::to_string(count));
    share.experts = part_of(hyper.experts, 1, rank, count);
  } else {
    share.feed_forward = even_part(hyper.feed_forward, 32, rank, count, "columns of the MLP");
  }
  return share;
}

}  // namespace llm
