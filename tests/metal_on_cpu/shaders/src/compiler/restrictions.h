// What MSL forbids, and a token shows.
#pragma once

#include <vector>

#include "token.h"

namespace metal_on_cpu {

/// Keywords, function pointers, lambda expressions, attributes.
std::vector<Diagnostic> forbidden_tokens(const TokenStream& stream);

/// Whether `name` is an address space of MSL.
bool is_address_space(const Token& token);

}  // namespace metal_on_cpu
