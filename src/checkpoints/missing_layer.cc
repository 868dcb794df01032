#include "checkpoints/missing_layer.h"

#include <algorithm>
#include <array>

namespace metal_marlin {
namespace {

constexpr size_t kMostLayers = 20000;
constexpr size_t kLongest = 160;  // of names that are compared letter by letter
constexpr size_t kMostLetters = 4;

/// How many letters have to be put in, left out or replaced to turn a into b; `limit` + 1 stands
/// for more than limit.
size_t distance(std::string_view a, std::string_view b, size_t limit) {
  const size_t shorter = std::min(a.size(), b.size()), longer = std::max(a.size(), b.size());
  if (longer > kLongest || longer - shorter > limit) return limit + 1;
  std::array<size_t, kLongest + 1> row{};  // from a's first letters to b's first j
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0], least = row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j - 1] + 1, row[j] + 1, replaced});
      least = std::min(least, row[j]);
    }
    if (least > limit) return limit + 1;
  }
  return std::min(row[b.size()], limit + 1);
}

/// Whether one is the other behind a dot ("down_proj") or before one ("a.weight").
bool is_part(std::string_view whole, std::string_view part) {
  if (part.empty() || whole.size() <= part.size()) return false;
  if (whole.starts_with(part)) return whole[part.size()] == '.';
  return whole.ends_with(part) && whole[whole.size() - part.size() - 1] == '.';
}

/// The most similar name, or "".
std::string_view closest(const Checkpoint& files, std::string_view name) {
  std::string_view best;
  size_t least = std::min(kMostLetters, name.size() / 4) + 1;
  const size_t count = std::min(files.layer_count(), kMostLayers);
  for (size_t i = 0; i < count; ++i) {
    const std::string_view other = files.layer_name(i);
    if (is_part(name, other) || is_part(other, name)) return other;
    const size_t letters = distance(name, other, least - 1);
    if (letters < least) {
      least = letters;
      best = other;
    }
  }
  return best;
}

}  // namespace

Status missing_layer(const Checkpoint& files, std::string_view name) {
  const auto cut = [](std::string_view text) {
    return static_cast<int>(std::min<size_t>(text.size(), 80));
  };
  const size_t count = files.layer_count();
  const std::string_view meant = closest(files, name);
  if (meant.empty())
    return Status::error(MARLIN_E_NOT_FOUND,
                         "no layer is called %.*s; the checkpoint has %zu of other names",
                         cut(name), name.data(), count);
  return Status::error(MARLIN_E_NOT_FOUND,
                       "no layer is called %.*s; did you mean %.*s? The checkpoint has %zu layer%s",
                       cut(name), name.data(), cut(meant), meant.data(), count,
                       count == 1 ? "" : "s");
}

}  // namespace metal_marlin
