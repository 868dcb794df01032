/* The installed header, where pkg-config says that it lies. */
#include <metal_marlin/metal_marlin.h>
