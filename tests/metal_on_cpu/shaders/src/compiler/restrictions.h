// What MSL forbids, and a token shows.
#pragma once

#include <vector>

#include "declarations.h"

namespace metal_on_cpu {

/// Keywords, function pointers, lambda expressions, attributes.
std::vector<Diagnostic> forbidden_tokens(const TokenStream& stream);

/// Whether a declaration outside of functions, in the class of this name if it has one, is of a variable, and not constant.
bool variable_outside_of_constant(const TokenStream& stream, const Declaration& d, const std::string& in_class);
/// Whether a static variable that is not constant is declared at i, before `end`.
bool static_variable(const TokenStream& stream, size_t i, size_t end);

/// Whether `name` is an address space of MSL.
bool is_address_space(const Token& token);

}  // namespace metal_on_cpu
