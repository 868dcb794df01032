// The registration of kernels: which arguments they take, from the attributes of their parameters.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "declarations.h"

namespace metal_on_cpu {

/// What a kernel function's header says.
struct KernelHeader {
  std::string name;
  std::string host_name;          // empty: as the function
  std::string max_threads = "0";  // an expression, which may name parameters of the template
  bool is_template = false;
  std::string template_head;  // "template < typename T >"
  uint32_t param_count = 0;
  std::string params;  // initializers of msl::Param
  std::string file;
  uint32_t first_line = 0, last_line = 0;
  std::vector<Diagnostic> errors;
};

/// Whether the header [begin, end) is one of a kernel.
bool is_kernel(const TokenStream& stream, size_t begin, size_t end);
/// host_name("...") of a header, or empty.
std::string host_name_of(const TokenStream& stream, size_t begin, size_t end);
/// `constants`: names of function constants.
KernelHeader read_kernel(const TokenStream& stream, const Declaration& function, const std::set<std::string>& constants);

}  // namespace metal_on_cpu
