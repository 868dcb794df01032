#include "command_line.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "library.h"
#include "metal_marlin/metal_marlin.h"
#include "quantize_options.h"
#include "terminal.h"
#include "usage.h"

namespace metal_marlin::tools {
namespace {

std::string version_text() {
  const uint32_t v = marlin_version();
  return fmt::format("metal-marlin {}.{}.{} (ABI {}.{})", v >> 16, (v >> 8) & 0xff, v & 0xff,
                     MARLIN_ABI_MAJOR, MARLIN_ABI_MINOR);
}

void describe(CLI::App& app) {
  app.name("metal-marlin");
  app.set_version_flag("--version", version_text());
  app.require_subcommand(1);
  app.allow_windows_style_options(false);  // a path may begin with a slash there, too
  app.get_formatter()->column_width(30);
  app.fallthrough();  // --color may stand behind the command
  app.add_option_function<std::string>(
         "--color", [](const std::string& word) { set_color(known(parse_color(word))); },
         "Whether what is wrong is red; default: auto, on terminals unless NO_COLOR is set")
      ->check(names_of(parse_color, "{auto, always, never}"));
  app.add_option_function<std::string>(
         "--read-as", [](const std::string& word) { set_reading(known(parse_reading(word))); },
         "How to read layers that a file leaves open: the layout of .qweight, which dimension of "
         "stacks of experts comes first, or members of config.json, as "
         "'{\"quantization_config\": {\"group_size\": 64}}'")
      ->check(names_of(parse_reading,
                       "{gptq-v1, gptq-v2, awq, awq-gemv, awq-gemv-fast, outputs-first, "
                       "inputs-first, JSON}"));
  app.failure_message(usage_error);
  app.footer(
      "Exit codes: 0 all is well; 1 done, and something was found wrong; 2 the command line makes "
      "no sense;\n"
      "3 the work could not be done.\n\n"
      "Start with:  metal-marlin doctor        what this machine can do\n"
      "             metal-marlin inspect DIR   what a checkpoint holds\n"
      "'metal-marlin COMMAND --help' has all options, and examples.");
}

}  // namespace

CommandLine::CommandLine()
    : app_(std::make_unique<CLI::App>("Multiply by 4-bit weights at the speed of memory: look at "
                                      "checkpoints, check them, unpack them, measure.")) {
  describe(*app_);
  add_doctor(*app_, action_);
  add_inspect(*app_, action_);
  add_verify(*app_, action_);
  add_unpack(*app_, action_);
  add_pack(*app_, action_);
  add_quantize(*app_, action_);
  add_bench(*app_, action_);
  add_explain(*app_, action_);
  add_quickstart(*app_, action_);
}

CommandLine::~CommandLine() = default;

Action CommandLine::parse(int argc, const char* const* argv) {
  check_command(*app_, {argv + 1, argv + argc});
  try {
    app_->parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    const bool asked = app_->exit(e) == 0;  // --help and --version come here too; exit() prints
    return [asked] { return asked ? ExitCode::ok : ExitCode::usage; };
  }
  return action_;
}

}  // namespace metal_marlin::tools
