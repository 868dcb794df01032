// What the subcommands share: how they are declared, how they end, how they fail.
#pragma once

#include <functional>
#include <stdexcept>
#include <string>

// <CLI/CLI.hpp> costs seconds to compile; only what declares options has it.
namespace CLI {
class App;
}

namespace metal_marlin::tools {

/// The documented exit codes; docs/command.md and metal-marlin.1 list them.
enum class ExitCode : int {
  ok = 0,
  wrong = 1,   ///< the work was done and something was found wrong: a check failed, a layer would
               ///< not load
  usage = 2,   ///< the command line makes no sense
  failed = 3,  ///< the work could not be done: no such file, malformed, out of memory, no device
};

/// Ends the command with a message for people. Thrown by tools code only; main() prints it.
class Failure : public std::runtime_error {
 public:
  explicit Failure(const std::string& message, ExitCode code = ExitCode::failed)
      : std::runtime_error(message), code_(code) {}
  ExitCode code() const { return code_; }

 private:
  ExitCode code_;
};

/// What main() runs once the command line is parsed; each subcommand's callback sets it.
using Action = std::function<ExitCode()>;

// One subcommand a file.
void add_doctor(CLI::App& app, Action& action);
void add_inspect(CLI::App& app, Action& action);
void add_verify(CLI::App& app, Action& action);
void add_unpack(CLI::App& app, Action& action);
void add_quantize(CLI::App& app, Action& action);
void add_bench(CLI::App& app, Action& action);
void add_explain(CLI::App& app, Action& action);
void add_report(CLI::App& app, Action& action);
void add_quickstart(CLI::App& app, Action& action);
void add_completions(CLI::App& app, Action& action);

}  // namespace metal_marlin::tools
