#include "covering.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <set>
#include <tuple>

namespace covering {
namespace {

class Generator {
 public:
  /// Of `pairs` only the triples with the first factor count, which has one level.
  Generator(const std::vector<int>& levels, const Allowed& allowed, uint32_t seed, bool pairs)
      : levels_(levels), allowed_(allowed), random_(seed), first_(levels.size()), pairs_(pairs) {
    std::partial_sum(levels.begin(), levels.end(), first_.begin());
    total_ = first_.back();
    for (size_t f = 0; f < levels.size(); ++f) first_[f] -= levels[f];
    covered_.assign(static_cast<size_t>(total_) * total_ * total_, false);
  }

  std::vector<Row> run() {
    std::vector<Row> rows;
    const int factors = static_cast<int>(levels_.size());
    for (int a = 0; a < (pairs_ ? 1 : factors); ++a) {
      for (int b = a + 1; b < factors; ++b) {
        for (int c = b + 1; c < factors; ++c) cover({a, b, c}, rows);
      }
    }
    return rows;
  }

 private:
  struct Triple {
    int a, b, c;
  };

  /// Levels of all factors in one row of numbers; triples with ascending factors.
  size_t index(int fa, int la, int fb, int lb, int fc, int lc) const {
    const auto at = [&](int f, int l) { return static_cast<size_t>(first_[static_cast<size_t>(f)]) + static_cast<size_t>(l); };
    const auto total = static_cast<size_t>(total_);
    return (at(fa, la) * total + at(fb, lb)) * total + at(fc, lc);
  }

  int count(int factor) const { return levels_[static_cast<size_t>(factor)]; }

  void cover(const Triple& t, std::vector<Row>& rows) {
    for (int x = 0; x < count(t.a); ++x) {
      for (int y = 0; y < count(t.b); ++y) {
        for (int z = 0; z < count(t.c); ++z) {
          if (covered_[index(t.a, x, t.b, y, t.c, z)]) continue;
          Row row(levels_.size(), -1);
          row[static_cast<size_t>(t.a)] = x;
          row[static_cast<size_t>(t.b)] = y;
          row[static_cast<size_t>(t.c)] = z;
          if (!complete(row)) continue;  // no row can hold these three
          mark(row);
          rows.push_back(row);
        }
      }
    }
  }

  bool complete(Row& row) {
    if (!allowed_(row)) return false;
    std::vector<int> order;
    for (int f = 0; f < static_cast<int>(row.size()); ++f) {
      if (row[static_cast<size_t>(f)] < 0) order.push_back(f);
    }
    for (const int f : order) {
      const int level = best_level(row, f);
      if (level < 0) return false;
      row[static_cast<size_t>(f)] = level;
    }
    return true;
  }

  /// Ties are broken at random, or early levels would be used far more often.
  int best_level(Row& row, int factor) {
    int best = -1, best_gain = -1, ties = 0;
    for (int l = 0; l < count(factor); ++l) {
      row[static_cast<size_t>(factor)] = l;
      if (!allowed_(row)) continue;
      const int gain = gain_of(row, factor);
      if (gain > best_gain) {
        best = l;
        best_gain = gain;
        ties = 1;
      } else if (gain == best_gain && random_() % static_cast<uint32_t>(++ties) == 0) {
        best = l;
      }
    }
    row[static_cast<size_t>(factor)] = -1;
    return best;
  }

  template <class Each>
  void triples_with(const Row& row, int factor, Each each) const {
    const int factors = static_cast<int>(row.size());
    for (int a = 0; a < (pairs_ ? 1 : factors); ++a) {
      if (a == factor || row[static_cast<size_t>(a)] < 0) continue;
      for (int b = a + 1; b < factors; ++b) {
        if (b == factor || row[static_cast<size_t>(b)] < 0) continue;
        int f[3] = {a, b, factor};
        std::sort(f, f + 3);
        each(index(f[0], row[static_cast<size_t>(f[0])], f[1], row[static_cast<size_t>(f[1])], f[2],
                   row[static_cast<size_t>(f[2])]));
      }
    }
  }

  int gain_of(const Row& row, int factor) const {
    int gain = 0;
    triples_with(row, factor, [&](size_t i) { gain += !covered_[i]; });
    return gain;
  }

  void mark(const Row& row) {
    for (int f = 0; f < static_cast<int>(row.size()); ++f) triples_with(row, f, [&](size_t i) { covered_[i] = true; });
  }

  const std::vector<int>& levels_;
  const Allowed& allowed_;
  std::mt19937 random_;
  std::vector<int> first_;
  const bool pairs_;
  int total_ = 0;
  std::vector<bool> covered_;
};

}  // namespace

std::vector<Row> three_way(const std::vector<int>& levels, const Allowed& allowed, uint32_t seed) {
  return Generator(levels, allowed, seed, false).run();
}

std::vector<Row> two_way(const std::vector<int>& levels, const Allowed& allowed, uint32_t seed) {
  std::vector<int> with_one = {1};
  with_one.insert(with_one.end(), levels.begin(), levels.end());
  const auto is_allowed = [&](const Row& row) { return allowed(Row(row.begin() + 1, row.end())); };
  std::vector<Row> rows = Generator(with_one, is_allowed, seed, true).run();
  for (Row& row : rows) row.erase(row.begin());
  return rows;
}

int64_t missing(const std::vector<int>& levels, const Allowed& allowed, const std::vector<Row>& rows) {
  std::set<std::tuple<size_t, int, size_t, int, size_t, int>> seen;
  const size_t factors = levels.size();
  for (const Row& r : rows) {
    for (size_t a = 0; a < factors; ++a) {
      for (size_t b = a + 1; b < factors; ++b) {
        for (size_t c = b + 1; c < factors; ++c) seen.emplace(a, r[a], b, r[b], c, r[c]);
      }
    }
  }
  // A combination is possible when some row that holds it is allowed; depth first over the other factors.
  const std::function<bool(Row&, size_t)> possible = [&](Row& row, size_t f) {
    if (!allowed(row)) return false;
    if (f == factors) return true;
    if (row[f] >= 0) return possible(row, f + 1);
    for (int l = 0; l < levels[f]; ++l) {
      row[f] = l;
      if (possible(row, f + 1)) {
        row[f] = -1;
        return true;
      }
    }
    row[f] = -1;
    return false;
  };
  int64_t absent = 0;
  for (size_t a = 0; a < factors; ++a) {
    for (size_t b = a + 1; b < factors; ++b) {
      for (size_t c = b + 1; c < factors; ++c) {
        for (int x = 0; x < levels[a]; ++x) {
          for (int y = 0; y < levels[b]; ++y) {
            for (int z = 0; z < levels[c]; ++z) {
              if (seen.contains({a, x, b, y, c, z})) continue;
              Row row(factors, -1);
              row[a] = x;
              row[b] = y;
              row[c] = z;
              absent += possible(row, 0);
            }
          }
        }
      }
    }
  }
  return absent;
}

}  // namespace covering
