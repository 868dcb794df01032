// Cases of products for the kernels of CUDA that serve some forms of weights only.
#pragma once

#include <cstdint>

#include "kernels/trial.h"

namespace cuda_test {

/// A case that a kernel for Hopper serves; number `i` of a sequence.
trial::Case case_of_form(uint32_t i);
/// The same of 2:4 weights, whose forms have no zeros. There are none of INT8.
trial::Case sparse_case_of_form(uint32_t i);
/// A case of MARLIN_COMPUTE_FP8; number `i` of a sequence.
trial::Case fp8_case(uint32_t i);

}  // namespace cuda_test
