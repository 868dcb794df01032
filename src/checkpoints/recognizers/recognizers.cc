#include "checkpoints/recognizers/recognizers.h"

#include <algorithm>
#include <array>
#include <charconv>

namespace metal_marlin {
namespace {

/// The layouts of one recognizer, and how many there are.
template <class... Ids>
constexpr std::array<LayoutId, sizeof...(Ids)> ids(Ids... all) {
  return {all...};
}

#define MARLIN_RECOGNIZER(id, ...) constexpr auto k_##id = ids(__VA_ARGS__);
#include "checkpoints/recognizers/recognizers.inc"

constexpr Recognizer kRecognizers[] = {
#define MARLIN_RECOGNIZER(id, ...) {recognize_##id, k_##id},
#include "checkpoints/recognizers/recognizers.inc"
};

}  // namespace

std::span<const Recognizer> recognizers() { return kRecognizers; }

std::optional<marlin_format> integer_format(int64_t bits) {
  switch (bits) {
    case 2:
      return MARLIN_FORMAT_INT2;
    case 3:
      return MARLIN_FORMAT_INT3;
    case 4:
      return MARLIN_FORMAT_INT4;
    case 5:
      return MARLIN_FORMAT_INT5;
    case 6:
      return MARLIN_FORMAT_INT6;
    case 8:
      return MARLIN_FORMAT_INT8;
    default:
      return std::nullopt;
  }
}

std::optional<uint32_t> take_number(std::string_view& text) {
  uint32_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return number;
}

bool finds(RecognizerId id, marlin_layout number) {
  const auto& layouts = kRecognizers[static_cast<size_t>(id)].layouts;
  return number != MARLIN_LAYOUT_AUTO &&
         std::any_of(layouts.begin(), layouts.end(),
                     [&](LayoutId l) { return layout_row(l).number == number; });
}

}  // namespace metal_marlin
