#include "metal_counters.h"

#include <fmt/core.h>
#include <unistd.h>

#ifdef __APPLE__
#include <mach-o/dyld.h>
#endif

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "command.h"

namespace metal_marlin::tools {
namespace {

namespace fs = std::filesystem;

/// The folder of this program; empty if the system does not report it.
fs::path own_folder() {
#ifdef __APPLE__
  char path[4096];
  uint32_t size = sizeof path;
  if (_NSGetExecutablePath(path, &size) != 0) return {};
  const fs::path own = path;
#else
  const fs::path own = "/proc/self/exe";
#endif
  std::error_code none;
  return fs::canonical(own, none).parent_path();
}

}  // namespace

void run_metal_counters(const std::vector<std::string>& arguments) {
  // The suite "shaders" builds the program beside this command's tools/metal-marlin.
  const fs::path folder = own_folder().parent_path() / "tests" / "shaders";
  const std::string program = folder / "metal_counters";
  std::vector<char*> argv = {const_cast<char*>(program.c_str())};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  setenv("METAL_ON_CPU_CACHE", (folder / "images").c_str(),
         0);  // compiled shaders, shared with the tests
  std::fflush(stdout);
  execv(program.c_str(), argv.data());
  throw Failure(fmt::format(
      "cannot run {}: {}\nThe kernels are counted by a program of the tests; in the source tree, "
      "build it with\n"
      "  ./dev test shaders        (or: cmake --preset release -DMETAL_MARLIN_TESTS=ON &&\n"
      "                                  cmake --build build/release --target metal_counters)",
      program, std::strerror(errno)));
}

}  // namespace metal_marlin::tools
