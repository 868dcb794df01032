// As much of Metal as hosts of compute shaders use.
#pragma once

#include <Metal/MTLCommand.h>
#include <Metal/MTLDevice.h>
#include <Metal/MTLLibrary.h>
#include <Metal/MTLResource.h>
