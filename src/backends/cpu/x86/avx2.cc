#if defined(__x86_64__)

#include "backends/cpu/x86/vec/avx2.h"

#define MARLIN_EXPAND_WITHOUT_E4M3  // avx2_f32.h
#include "backends/cpu/x86/tile/super.inc"

#endif
