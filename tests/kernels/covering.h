// A t-way covering array (t = 3 or 2): a list of rows, one level a factor, in which every allowed combination of any three
// factors' levels occurs. Bugs of few interacting causes cannot hide from it, at a thousandth of the full product.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace covering {

/// One level a factor; -1 where not chosen yet.
using Row = std::vector<int>;

/// May these levels occur together? Asked of partial rows too; must not reject a row that could still be completed by choosing
/// factor 0 first, then 1, ...
using Allowed = std::function<bool(const Row&)>;

/// Deterministic for a seed; greedy (as in AETG: Cohen, Dalal, Fredman, Patton 1997), each row begun with a combination that is
/// not covered yet, the others chosen to cover the most.
std::vector<Row> three_way(const std::vector<int>& levels, const Allowed& allowed, uint32_t seed);

/// The same of any two factors.
std::vector<Row> two_way(const std::vector<int>& levels, const Allowed& allowed, uint32_t seed);

/// Allowed combinations of three that no row has; 0 for what three_way returns. Slow and independent of it.
int64_t missing(const std::vector<int>& levels, const Allowed& allowed, const std::vector<Row>& rows);

}  // namespace covering
