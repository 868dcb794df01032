// Casts in the notation of C to pointers with an address space: clang lets them change it, MSL does not.
#pragma once

#include <vector>

#include "token.h"

namespace metal_on_cpu {

struct PointerCast {
  size_t open, close;  // the parentheses round the type
  size_t last;         // the operand's last token
};

/// Those between tokens `begin` and `end` of a function's body.
std::vector<PointerCast> pointer_casts(const TokenStream& stream, size_t begin, size_t end);

}  // namespace metal_on_cpu
