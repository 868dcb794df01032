// The options --format and --group of unpack, verify, bench and explain, for layers of floats.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>

#include "command.h"
#include "library.h"
#include "names.h"

namespace metal_marlin::tools {

/// Accepts the names of a parser (parse_format, ...), and lists them in an error.
template <class Parse>
CLI::Validator names_of(Parse parse, const std::string& list) {
  return CLI::Validator(
      [parse, list](std::string& text) {
        return parse(text) ? "" : "'" + text + "' is none of " + list;
      },
      list);
}
/// The value of a name that passed its check.
template <class T>
T known(const std::optional<T>& parsed) {
  if (!parsed) throw Failure("a name passed its check and has no meaning", ExitCode::usage);
  return *parsed;
}
/// A range whose bounds the help does not show, because the types would be as long as the texts.
template <class T>
CLI::Validator in_range(T low, T high) {
  return CLI::Range(low, high).description("");
}
/// The type of an option that names a file; its values are then completed as paths.
constexpr const char* kFile = "FILE";
inline CLI::Validator backend_names() {
  return names_of(parse_backend, "{auto, cpu, metal, cuda}");
}
inline CLI::Validator format_names() {
  return names_of(parse_format, "{int4, fp4, mxfp4, nvfp4, int8}");
}

struct QuantizeOptions {
  std::string format;
  uint32_t group = 0;

  void add_to(CLI::App& app) {
    auto* name = app.add_option("--format", format, "Quantize layers of floats to this format")
                     ->check(format_names());
    app.add_option(
           "--group", group,
           "Weights that share a scale, with --format; default: the format's own, 32 (nvfp4: 16)")
        ->needs(name);
  }
  Quantize get() const { return {parse_format(format).value_or(MARLIN_FORMAT_NONE), group}; }
};

}  // namespace metal_marlin::tools
