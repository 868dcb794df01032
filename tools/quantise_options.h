// --format and --group, as unpack, verify, bench and explain take them for layers of floats.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "library.h"
#include "names.h"

namespace metal_marlin::tools {

/// Accepts the names of a parser (parse_format, ...), and says which there are.
template <class Parse>
CLI::Validator names_of(Parse parse, const std::string& list) {
  return CLI::Validator([parse, list](std::string& text) { return parse(text) ? "" : "'" + text + "' is none of " + list; },
                        list);
}
inline CLI::Validator format_names() { return names_of(parse_format, "{int4, fp4, mxfp4, nvfp4, int8}"); }

struct QuantiseOptions {
  std::string format;
  uint32_t group = 0;

  void add_to(CLI::App& app) {
    auto* name = app.add_option("--format", format, "Quantise layers of floats to this format")->check(format_names());
    app.add_option("--group", group, "Weights that share a scale, with --format; default: the format's own, 32 (nvfp4: 16)")
        ->needs(name);
  }
  Quantise get() const { return {parse_format(format).value_or(MARLIN_FORMAT_NONE), group}; }
};

}  // namespace metal_marlin::tools
