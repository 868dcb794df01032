#include "words.h"

#include <algorithm>

namespace metal_marlin::tools {
namespace {

/// How many letters have to be put in, left out or replaced.
size_t distance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j - 1] + 1, row[j] + 1, replaced});
    }
  }
  return row[b.size()];
}

}  // namespace

std::string counted(size_t count, const char* noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

std::string most_like(const std::string& word, const std::vector<std::string>& words) {
  std::string best;
  size_t least = std::max<size_t>(1, word.size() / 3) + 1;
  for (const std::string& other : words) {
    const bool begins = word.size() >= 3 && other.starts_with(word);
    const size_t letters = begins ? 0 : distance(word, other);
    if (letters < least) {
      least = letters;
      best = other;
    }
  }
  return best;
}

}  // namespace metal_marlin::tools
