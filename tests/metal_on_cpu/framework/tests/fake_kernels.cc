// What the kernels of host.mm and of the tests do.
#include <algorithm>

#include "fake_engine.h"

namespace metal_framework::fake {
namespace {

bool define_all() {
  define("add", [](const Thread& t) {
    t.buffer<float>(2)[t.position.x] = t.buffer<const float>(0)[t.position.x] + t.buffer<const float>(1)[t.position.x];
  });
  define("gemv", [](const Thread& t) {
    const auto k = t.value<uint32_t>(3);
    float sum = 0;
    for (uint32_t i = 0; i < k; ++i) sum += t.buffer<const float>(0)[t.position.x * k + i] * t.buffer<const float>(1)[i];
    const bool relu = std::get<uint64_t>(t.constants.by_index.at(0)) != 0;
    t.buffer<float>(2)[t.position.x] = relu ? std::max(sum, 0.0f) : sum;
  });
  // y = a * x + y, a a function constant of index 1 or name kFactor
  define("axpy", [](const Thread& t) {
    const auto a = static_cast<float>(std::get<double>(t.constants.by_index.at(1)));
    t.buffer<float>(1)[t.position.x] += a * t.buffer<const float>(0)[t.position.x];
  });
  // y = y * 2 + value: the result tells the order of dispatches
  define("append", [](const Thread& t) {
    if (t.position.x == 0) *t.buffer<float>(0) = *t.buffer<float>(0) * 2 + t.value<float>(1);
  });
  return true;
}

const bool defined = define_all();

}  // namespace
}  // namespace metal_framework::fake
