// The product kernels of some forms of weights, each with every shape of tile. They stand for the
// others where no GPU runs the kernels: of the forms of INT4 and INT8, each type of scales, each
// kind of zeros and each size of groups is in one of these. The wgmma kernels take longest to
// compile. Those of one form of INT4 stand for them, because the decoders of other codes are in the
// ring kernels, too. The kernels that are left out here are compiled for the library itself.
#include "../../shaders/common/cuda_parameters.h"

#if !defined(MARLIN_FORMS_u4) || !defined(MARLIN_FORMS_i8) || !defined(MARLIN_FORMS_fp4) || !defined(MARLIN_FORMS_u4_sparse)
#error "expected the lists of forms that this file shortens, found others in cuda_parameters.h"
#endif
#undef MARLIN_FORMS_u4
#undef MARLIN_FORMS_i8
#undef MARLIN_FORMS_fp4
#undef MARLIN_FORMS_u4_sparse
#define MARLIN_FORMS_u4(X) X(1, 1, 7, wgmma) X(1, 3, 5, mma) X(1, 0, 6, mma) X(0, 2, 5, mma)
#define MARLIN_FORMS_i8(X) X(1, 0, 5, mma) X(0, 0, 4, mma) X(0, 2, 5, mma)
#define MARLIN_FORMS_fp4(X) X(3, 0, 5, mma) X(4, 0, 4, mma)
#define MARLIN_FORMS_u4_sparse(X) X(1, 0, 5, none) X(1, 0, 7, none)

#include "../../shaders/cuda/products.cu"
