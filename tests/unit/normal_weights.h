// Weights as models have them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace metal_marlin {

/// Numbers of a normal distribution around 0, the same for the same seed.
inline std::vector<float> normal(size_t count, uint32_t seed, float sigma = 0.02f) {
  std::mt19937 random(seed);
  std::normal_distribution<float> d(0, sigma);
  std::vector<float> w(count);
  for (float& x : w) x = d(random);
  return w;
}

}  // namespace metal_marlin
