#include "profile.h"

#include "workload.h"

namespace metal_marlin::tools {

ProfileInfo profile_of(marlin_context* context) {
  // Whatever product is explained, the text names the profile. Every device has kernels for F16.
  constexpr int64_t kN = 32, kK = 64;
  const Weights weights = RandomWeights({MARLIN_INT4, kN, kK}, 1).pack(context);
  const HostMatrix a(1, kK, MARLIN_F16), c(1, kN, MARLIN_F32);
  const std::string text = explain(product(weights.get(), a, c, 1, MARLIN_COMPUTE_DEFAULT));
  return {explained(text, "profile"), explained(text, "profile_products")};
}

}  // namespace metal_marlin::tools
