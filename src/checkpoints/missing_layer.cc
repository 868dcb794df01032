#include "checkpoints/missing_layer.h"

#include <algorithm>
#include <array>

#include "base/utf8.h"
#include "checkpoints/tensor_table.h"

namespace metal_marlin {
namespace {

constexpr size_t kMostLayers = 20000;
constexpr size_t kLongest = 160;  // of names that are compared letter by letter
constexpr size_t kMostLetters = 4;

/// How many letters, in either case, have to be put in, left out or replaced to turn a into b;
/// `limit` + 1 stands for more than limit.
size_t distance(std::string_view a, std::string_view b, size_t limit) {
  const size_t shorter = std::min(a.size(), b.size()), longer = std::max(a.size(), b.size());
  if (longer > kLongest || longer - shorter > limit) return limit + 1;
  std::array<size_t, kLongest + 1> row{};  // from a's first letters to b's first j
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0], least = row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (small_letter(a[i - 1]) == small_letter(b[j - 1]) ? 0 : 1);
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

/// The end of a name that has as many parts between dots as `like`; the whole name if it has fewer.
std::string_view ending(std::string_view name, std::string_view like) {
  auto dots = std::count(like.begin(), like.end(), '.');
  size_t at = name.size();
  for (; at > 0 && dots >= 0; --at) dots -= name[at - 1] == '.' ? 1 : 0;
  return dots < 0 ? name.substr(at + 1) : name;
}

/// The layer whose name, or the end of it, is most similar, or "".
std::string_view closest(const Checkpoint& files, std::string_view name) {
  std::string_view best;
  size_t least = std::min(kMostLetters, name.size() / 4) + 1;
  const size_t count = std::min(files.layer_count(), kMostLayers);
  for (size_t i = 0; i < count; ++i) {
    const std::string_view other = files.layer_name(i);
    if (is_part(name, other) || is_part(other, name)) return other;
    const size_t letters = distance(name, ending(other, name), least - 1);
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
  const char* plural = count == 1 ? "" : "s";
  if (files.tensors().find(name) && !is_part(name, meant))
    return Status::error(MARLIN_E_NOT_FOUND,
                         "no layer is called %.*s: it is a tensor of no layer, which "
                         "marlin_checkpoint_tensor gives",
                         cut(name), name.data());
  if (meant.empty() && count == 0)
    return Status::error(MARLIN_E_NOT_FOUND,
                         "no layer is called %.*s; the checkpoint has no layers", cut(name),
                         name.data());
  if (meant.empty()) {
    const std::string_view first = files.layer_name(0);
    return Status::error(
        MARLIN_E_NOT_FOUND,
        "no layer is called %.*s; the checkpoint has %zu layer%s, the first is %.*s", cut(name),
        name.data(), count, plural, cut(first), first.data());
  }
  return Status::error(MARLIN_E_NOT_FOUND,
                       "no layer is called %.*s; did you mean %.*s? The checkpoint has %zu layer%s",
                       cut(name), name.data(), cut(meant), meant.data(), count, plural);
}

}  // namespace metal_marlin
