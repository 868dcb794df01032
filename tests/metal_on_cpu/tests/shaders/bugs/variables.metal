// Variables of a thread that are read before they have a value, and constants without one.
#include <metal_stdlib>
using namespace metal;
constant int kMissing [[function_constant(7)]];

kernel void set_in_one_branch(device float* y [[buffer(1)]], uint i [[thread_position_in_grid]]) {
  float v;
  if (i < 5) v = 1;  // BUG uninitialised-variable
  y[i] = v;
}
kernel void never_set(device float* y [[buffer(1)]], uint i [[thread_position_in_grid]]) {
  float v;
  y[i] = v + 1;  // BUG uninitialised-variable
}
kernel void used_in_itself(device int* y [[buffer(1)]], uint i [[thread_position_in_grid]]) {
  int n = n + i;  // BUG uninitialised-variable
  y[i] = n;
}
kernel void constant_without_value(device int* y [[buffer(1)]], uint i [[thread_position_in_grid]]) {
  y[i] = kMissing;  // BUG undefined-function-constant
}
