// What the kernels of shader.h, and the host's own helpers, do where there is no shader compiler.
#include "metal_on_cpu/framework/tests/fake_engine.h"

namespace metal_framework::fake {
namespace {

bool define_all() {
  define("scale", [](const Thread& t) {
    const auto& constants = t.constants;
    const uint64_t n = t.value<uint32_t>(2);
    if (t.position.x >= n) return;
    const bool negate = constants.contains(0) && std::get<bool>(constants.at(0));
    const auto shift = constants.contains(1) ? static_cast<float>(std::get<uint64_t>(constants.at(1))) : 0.0f;
    const auto factor = constants.contains(2) ? static_cast<float>(std::get<uint64_t>(constants.at(2))) : 1.0f;
    const float x = t.buffer<const float>(0)[t.position.x] * factor + shift;
    t.buffer<float>(1)[t.position.x] = negate ? -x : x;
  });
  // y = 2 * y + value: the result tells the order of dispatches.
  define("append", [](const Thread& t) {
    if (t.position.x == 0) *t.buffer<float>(0) = *t.buffer<float>(0) * 2 + t.value<float>(1);
  });
  define("follow", [](const Thread& t) { t.buffer<float>(1)[0] = **t.buffer<const float* const>(0); });
  define("marlin_copy_bytes", [](const Thread& t) {
    const uint64_t i = (t.position.y * t.dispatch.groups.x) * 256 + t.position.x;
    if (i < t.value<uint64_t>(2)) t.buffer<uint8_t>(1)[i] = t.buffer<const uint8_t>(0)[i];
  });
  define("marlin_fill_bytes", [](const Thread& t) {
    const uint64_t i = (t.position.y * t.dispatch.groups.x) * 256 + t.position.x;
    if (i < t.value<uint64_t>(2)) t.buffer<uint8_t>(0)[i] = t.value<uint8_t>(1);
  });
  return true;
}

const bool defined = define_all();

}  // namespace
}  // namespace metal_framework::fake
