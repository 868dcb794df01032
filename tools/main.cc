// metal-marlin: look at, check, convert and measure 4-bit weights from the command line.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>

#include "command.h"
#include "help.h"
#include "metal_marlin/metal_marlin.h"
#include "printable.h"
#include "quantize_options.h"
#include "terminal.h"

namespace metal_marlin::tools {
namespace {

std::string version_text() {
  const uint32_t v = marlin_version();
  return fmt::format("metal-marlin {}.{}.{} (ABI {}.{})", v >> 16, (v >> 8) & 0xff, v & 0xff,
                     MARLIN_ABI_MAJOR, MARLIN_ABI_MINOR);
}

int run(int argc, char** argv) {
  CLI::App app{
      "Multiply by 4-bit weights at the speed of memory: look at checkpoints, check them, unpack "
      "them, measure."};
  app.name("metal-marlin");
  app.set_version_flag("--version", version_text());
  app.require_subcommand(1);
  app.formatter(help_formatter());
  app.fallthrough();  // --color may stand behind the command
  app.add_option_function<std::string>(
         "--color", [](const std::string& word) { set_color(known(parse_color(word))); },
         "Whether what is wrong is red; default: auto, on terminals unless NO_COLOR is set")
      ->check(names_of(parse_color, "{auto, always, never}"));
  app.failure_message([](const CLI::App*, const CLI::Error& e) {
    return fmt::format("metal-marlin: {}\nTry 'metal-marlin --help'.\n", e.what());
  });
  app.footer(
      "Exit codes: 0 all is well; 1 done, and something was found wrong; 2 the command line makes "
      "no sense;\n"
      "3 the work could not be done.\n\n"
      "Start with:  metal-marlin doctor        what this machine can do\n"
      "             metal-marlin inspect DIR   what a checkpoint holds\n"
      "'metal-marlin COMMAND --help' has examples; the manual page metal-marlin(1) has the rest.");
  Action action;
  add_doctor(app, action);
  add_inspect(app, action);
  add_verify(app, action);
  add_unpack(app, action);
  add_pack(app, action);
  add_quantize(app, action);
  add_bench(app, action);
  add_explain(app, action);
  add_tune(app, action);
  add_report(app, action);
  add_quickstart(app, action);
  add_completions(app, action);
  check_command(app, {argv + 1, argv + argc});
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    const bool asked = app.exit(e) == 0;  // --help and --version come here too; exit() prints
    return static_cast<int>(asked ? ExitCode::ok : ExitCode::usage);
  }
  return static_cast<int>(action());
}

/// Unlike fmt::print, it does not throw, not even if standard error is a full disk.
void complain(const std::string& message) {
  (void)std::fputs(fmt::format("metal-marlin: {}\n", printable(message)).c_str(), stderr);
}

/// The work counts as done only if standard output accepted all text. A full disk or a closed pipe
/// may show as late as here. If it showed in an earlier flush, there is nothing left to write, but
/// the stream remembers the error.
bool output_arrived() {
  errno = 0;
  if (std::fflush(stdout) != 0) {
    complain(fmt::format("cannot write to standard output: {}", std::strerror(errno)));
    return false;
  }
  if (std::ferror(stdout) == 0) return true;
  complain("cannot write to standard output: not all of it arrived");
  return false;
}

}  // namespace
}  // namespace metal_marlin::tools

int main(int argc, char** argv) {
  using namespace metal_marlin::tools;
  // With this, a limit on the size of files (ulimit -f) is an error like a full disk, and the
  // incomplete file is removed.
  (void)std::signal(SIGXFSZ, SIG_IGN);
  constexpr int kFailed = static_cast<int>(ExitCode::failed);
  int code = kFailed;
  try {
    code = run(argc, argv);
  } catch (const Failure& e) {
    complain(e.what());
    code = static_cast<int>(e.code());
  } catch (const std::bad_alloc&) {
    complain("out of memory");
  } catch (const std::exception& e) {
    complain(e.what());
  }
  const bool complete = code == kFailed || output_arrived();  // one complaint is enough
  return complete ? code : kFailed;
}
