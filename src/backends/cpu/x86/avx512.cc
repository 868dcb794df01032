#if defined(__x86_64__)

#include "backends/cpu/x86/vec/avx512.h"

#include "backends/cpu/x86/tile/super.inc"

#endif
