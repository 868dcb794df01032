// From the words of a command line to the work that they ask for.
#pragma once

#include <memory>

#include "command.h"

namespace metal_marlin::tools {

/// All commands and their options.
class CommandLine {
 public:
  CommandLine();
  ~CommandLine();

  /// The work that a command line asks for; it may look at this object. Where the line asks for
  /// help or the version, or is wrong, this has been said, and the work gives no more than the exit
  /// code. Throws a Failure if the line names no command that there is.
  Action parse(int argc, const char* const* argv);

 private:
  std::unique_ptr<CLI::App> app_;
  Action action_;
};

}  // namespace metal_marlin::tools
