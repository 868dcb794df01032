#include "metallib.h"

#include <cstdio>
#include <cstdlib>
#include <sstream>

#include "process.h"

namespace metal_on_cpu {
namespace {

Result<std::string> air_to_native(const std::vector<std::string>& arguments) {
  const char* const given = std::getenv("METAL_ON_CPU_AIR_TO_NATIVE");
  std::vector<std::string> command = {given ? given : "air-to-native"};
  command.insert(command.end(), arguments.begin(), arguments.end());
  const ProcessResult result = run_process(command);
  if (result.exit_code == 127) {
    return Error{arguments[0] + ": a .metallib needs the program air-to-native (tests/metal_on_cpu/air) in PATH or in " +
                 "$METAL_ON_CPU_AIR_TO_NATIVE; '" + command[0] + "' cannot be started"};
  }
  if (result.exit_code != 0) return Error{arguments[0] + ": " + result.errors.substr(0, 2000)};
  return result.output;
}

const char* contraction_name(Contraction c) {
  return c == Contraction::kOff ? "off" : c == Contraction::kFloat ? "float" : "all";
}

// "7u" and "0x1.8p+1f" are C++; air-to-native takes "7" and "3.0".
std::string plain(const std::string& literal) {
  if (literal == "true" || literal == "false") return literal;
  if (literal.back() == 'f') {
    char text[64];
    std::snprintf(text, sizeof text, "%.17g", std::strtod(literal.c_str(), nullptr));
    const std::string number = text;
    return number.find('.') == std::string::npos ? number + "." : number;
  }
  return literal.substr(0, literal.find_first_of("ul"));
}

}  // namespace

Result<std::vector<std::string>> metallib_kernels(const std::string& path) {
  auto names = air_to_native({path, "--list"});
  if (!names) return names.error();
  std::vector<std::string> kernels;
  std::istringstream lines(names.value());
  for (std::string line; std::getline(lines, line);) kernels.push_back(line);
  return kernels;
}

Result<std::string> metallib_ir(const std::string& path, const ImageRequest& request, const CompileOptions& options) {
  std::vector<std::string> arguments = {path, "--kernel", request.kernel, "--contract", contraction_name(options.contraction)};
  if (request.checked) arguments.push_back("--checked");
  if (request.flush_to_zero) arguments.push_back("--flush-to-zero");
  for (const auto& [index, value] : request.constants.by_index) {
    arguments.push_back("--constant");
    arguments.push_back(std::to_string(index) + "=" + plain(value));
  }
  for (const auto& [name, value] : request.constants.by_name) {
    arguments.push_back("--constant");
    arguments.push_back(name + "=" + plain(value));
  }
  return air_to_native(arguments);
}

}  // namespace metal_on_cpu
