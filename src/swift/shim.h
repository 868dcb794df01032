/* The header of the C ABI, for the Swift package that compiles these sources. */
#pragma once

#include "../../include/metal_marlin/metal_marlin.h"
