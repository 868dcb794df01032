// Has a constant of the same name as the other file, and what a string of C++ must not trip over: "quoted" \ )" [[brackets]];
#include "both.h"
constant float kOwn = 3;
kernel void second(device float* y [[buffer(0)]], uint i [[thread_position_in_grid]]) { y[i] *= kOwn; }
