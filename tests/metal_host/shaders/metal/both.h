// Included twice by a file, and by both files.
#pragma once
#include <metal_stdlib>

#include "../common/numbers.h"
using namespace metal;
