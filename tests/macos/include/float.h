// Apple's <math.h> asks <float.h> for INFINITY and NAN alone, and libc++ of LLVM 21 and later then gives nothing to who
// includes it for the rest. Headers of others, such as GoogleTest's, need the rest.
#pragma GCC system_header
#ifndef __need_infinity_nan
#undef _LIBCPP_FLOAT_H
#endif
#include_next <float.h>
