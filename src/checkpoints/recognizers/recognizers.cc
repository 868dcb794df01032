#include "checkpoints/recognizers/recognizers.h"

#include <algorithm>
#include <array>

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

bool finds(RecognizerId id, marlin_layout number) {
  const auto& layouts = kRecognizers[static_cast<size_t>(id)].layouts;
  return number != MARLIN_LAYOUT_AUTO &&
         std::any_of(layouts.begin(), layouts.end(),
                     [&](LayoutId l) { return layout_row(l).number == number; });
}

}  // namespace metal_marlin
