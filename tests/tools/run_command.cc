#include "run_command.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <thread>

namespace metal_marlin::test {

namespace fs = std::filesystem;

Ran run_command(const std::vector<std::string>& arguments, const RunOptions& options) {
  const ScratchFolder folder;
  const std::string out = options.out.empty() ? folder.at("out") : options.out;
  const std::string err = options.err.empty() ? folder.at("err") : options.err;
  const char* const program = options.program.empty() ? MARLIN_COMMAND : options.program.c_str();
  std::vector<char*> argv{const_cast<char*>(program)};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const pid_t child = fork();
  if (child < 0) throw std::runtime_error("cannot fork");
  if (child == 0) {
    if (options.file_limit != 0) {
      const rlimit limit{options.file_limit, options.file_limit};
      if (setrlimit(RLIMIT_FSIZE, &limit) != 0) _exit(126);
    }
#if defined(__linux__) && !defined(MARLIN_COMMAND_SANITIZED)
    // What the command measures memory with is a quarter of it. On processors with large caches it would write gigabytes.
    const rlimit memory{uint64_t{1} << 30, uint64_t{1} << 30};
    if (setrlimit(RLIMIT_DATA, &memory) != 0) _exit(126);
#endif
    // A shell that starts a job in the background lets it ignore SIGINT.
    if (options.signal != 0) signal(options.signal, SIG_DFL);
    const int out_file = open(out.c_str(), O_WRONLY | O_CREAT, 0600), err_file = open(err.c_str(), O_WRONLY | O_CREAT, 0600);
    if (out_file < 0 || err_file < 0) _exit(127);
    if (dup2(out_file, STDOUT_FILENO) >= 0 && dup2(err_file, STDERR_FILENO) >= 0) execv(program, argv.data());
    _exit(127);
  }
  if (options.signal != 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(options.signal_ms));
    kill(child, options.signal);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), options.out.empty() ? read_file(out) : "",
          options.err.empty() ? read_file(err) : ""};
}

ScratchFolder::ScratchFolder() {
  std::string name = (fs::temp_directory_path() / "metal-marlin-test-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("cannot make " + name);
  path_ = name;
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

size_t ScratchFolder::entries() const {
  return static_cast<size_t>(std::distance(fs::directory_iterator(path_), fs::directory_iterator()));
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write_file(const std::string& path, const std::string& content) {
  std::ofstream file(path, std::ios::binary);
  file.write(content.data(), static_cast<std::streamsize>(content.size()));
  if (!file) throw std::runtime_error("cannot write " + path);
}

std::string data(const std::string& name) { return std::string(MARLIN_TEST_DATA) + "/" + name; }

}  // namespace metal_marlin::test
