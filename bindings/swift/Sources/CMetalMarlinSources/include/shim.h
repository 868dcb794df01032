/* The header of these sources, which the package compiles. */
#include "../../../../../include/metal_marlin/metal_marlin.h"
