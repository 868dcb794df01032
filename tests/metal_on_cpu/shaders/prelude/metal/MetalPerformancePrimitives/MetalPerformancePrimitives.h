#pragma once
#ifndef __HAVE_TENSOR__
#error "Metal Performance Primitives need the language of Metal 4"
#endif
