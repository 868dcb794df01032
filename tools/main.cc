// metal-marlin: look at, check, convert and measure 4-bit weights from the command line.
#include <fmt/core.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>

#include "command_line.h"
#include "platform.h"
#include "printable.h"

namespace metal_marlin::tools {
namespace {

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
  prepare_process();
  constexpr int kFailed = static_cast<int>(ExitCode::failed);
  int code = kFailed;
  try {
    CommandLine line;
    code = static_cast<int>(line.parse(argc, argv)());
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
