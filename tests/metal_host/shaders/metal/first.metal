#include "../common/numbers.h"
#include "both.h"
constant float kOwn = SEVEN;
kernel void first(device float* y [[buffer(0)]], uint i [[thread_position_in_grid]]) { y[i] = kOwn; }
