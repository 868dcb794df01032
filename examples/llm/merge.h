// Merging neighbors, the best pair first: what both kinds of tokenizers do with the smallest pieces
// of a text.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <queue>
#include <tuple>
#include <vector>

namespace llm {

template <class Symbol>
struct Merge {
  double rank;  // the lowest goes first, and of equals the leftmost
  Symbol merged;
};

/// merge_of(left, right) gives std::optional<Merge<Symbol>>. The symbols are a linked list, and a
/// heap has the pairs that can be merged. A pair in it whose symbols are no longer there is stale
/// and skipped, so that n symbols take n log n steps.
template <class Symbol, class MergeOf>
void merge_neighbors(std::vector<Symbol>& symbols, const MergeOf& merge_of) {
  struct Link {
    std::ptrdiff_t prev, next;
    bool there;
  };
  struct Pair {
    double rank;
    std::ptrdiff_t at;
    Symbol left, right, merged;
    bool operator>(const Pair& other) const {
      return std::tie(rank, at) > std::tie(other.rank, other.at);
    }
  };
  const auto size = std::ssize(symbols);
  std::vector<Link> links;
  links.reserve(symbols.size());
  for (std::ptrdiff_t i = 0; i < size; ++i) links.push_back({i - 1, i + 1, true});
  const auto symbol = [&](std::ptrdiff_t at) -> Symbol& {
    return symbols[static_cast<size_t>(at)];
  };
  const auto link = [&](std::ptrdiff_t at) -> Link& { return links[static_cast<size_t>(at)]; };
  std::priority_queue<Pair, std::vector<Pair>, std::greater<>> pairs;
  const auto offer = [&](std::ptrdiff_t left) {
    if (left < 0 || link(left).next >= size) return;
    const Symbol &a = symbol(left), &b = symbol(link(left).next);
    if (const std::optional<Merge<Symbol>> merge = merge_of(a, b))
      pairs.push({merge->rank, left, a, b, merge->merged});
  };
  for (std::ptrdiff_t i = 0; i < size; ++i) offer(i);
  while (!pairs.empty()) {
    const Pair pair = pairs.top();
    pairs.pop();
    const std::ptrdiff_t right = link(pair.at).next;
    if (!link(pair.at).there || symbol(pair.at) != pair.left) continue;
    if (right >= size || symbol(right) != pair.right) continue;
    symbol(pair.at) = pair.merged;
    link(right).there = false;
    link(pair.at).next = link(right).next;
    if (link(pair.at).next < size) link(link(pair.at).next).prev = pair.at;
    offer(link(pair.at).prev);
    offer(pair.at);
  }
  size_t kept = 0;
  for (size_t i = 0; i < symbols.size(); ++i) {
    if (links[i].there) symbols[kept++] = symbols[i];
  }
  symbols.resize(kept);
}

}  // namespace llm
