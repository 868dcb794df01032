// Force-included before every rewritten shader: the Metal standard library of compute kernels.
#pragma once
#include "kernel.h"
