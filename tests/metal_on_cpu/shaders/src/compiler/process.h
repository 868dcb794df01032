// Runs a program and keeps what it says.
#pragma once

#include <string>
#include <vector>

namespace metal_on_cpu {

struct ProcessResult {
  int exit_code = -1;  // 127: it could not be started; 128 + n: ended by signal n
  std::string output;  // standard output
  std::string errors;  // standard error
};

/// `arguments[0]` is looked up in PATH; `input` goes to its standard input. Safe to call from several threads.
ProcessResult run_process(const std::vector<std::string>& arguments, const std::string& input = {});

}  // namespace metal_on_cpu
