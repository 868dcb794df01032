#include "process.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>

extern char** environ;

namespace metal_on_cpu {
namespace {

struct Pipe {
  int read_end = -1, write_end = -1;
  bool open() {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) return false;
    read_end = ends[0], write_end = ends[1];
    return true;
  }
  static void shut(int& end) {
    if (end >= 0) ::close(end);
    end = -1;
  }
  ~Pipe() { shut(read_end), shut(write_end); }
};

// Feeds and drains until the program has closed its outputs.
void converse(Pipe& in, Pipe& out, Pipe& err, const std::string& input, ProcessResult& result) {
  size_t sent = 0;
  if (input.empty()) Pipe::shut(in.write_end);
  std::array<char, 65536> buffer{};
  while (out.read_end >= 0 || err.read_end >= 0) {
    std::array<pollfd, 3> fds = {{{out.read_end, POLLIN, 0}, {err.read_end, POLLIN, 0}, {in.write_end, POLLOUT, 0}}};
    if (poll(fds.data(), fds.size(), -1) < 0 && errno != EINTR) return;
    for (int i = 0; i < 2; ++i) {
      if (!(fds[i].revents & (POLLIN | POLLHUP | POLLERR))) continue;
      int& end = i == 0 ? out.read_end : err.read_end;
      const ssize_t n = read(end, buffer.data(), buffer.size());
      if (n > 0)
        (i == 0 ? result.output : result.errors).append(buffer.data(), static_cast<size_t>(n));
      else if (n == 0 || errno != EINTR)
        Pipe::shut(end);
    }
    if (in.write_end >= 0 && (fds[2].revents & (POLLOUT | POLLERR | POLLHUP))) {
      const ssize_t n = write(in.write_end, input.data() + sent, input.size() - sent);
      if (n > 0) sent += static_cast<size_t>(n);
      if (sent == input.size() || (n < 0 && errno != EINTR && errno != EAGAIN)) Pipe::shut(in.write_end);
    }
  }
}

}  // namespace

ProcessResult run_process(const std::vector<std::string>& arguments, const std::string& input) {
  ProcessResult result;
  Pipe in, out, err;
  if (!in.open() || !out.open() || !err.open()) return result;
  if (fcntl(in.write_end, F_SETFL, O_NONBLOCK) != 0) return result;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in.read_end, 0);
  posix_spawn_file_actions_adddup2(&actions, out.write_end, 1);
  posix_spawn_file_actions_adddup2(&actions, err.write_end, 2);
  std::vector<char*> argv;
  for (const std::string& a : arguments) argv.push_back(const_cast<char*>(a.c_str()));
  argv.push_back(nullptr);
  pid_t child = 0;
  const int status = posix_spawnp(&child, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  Pipe::shut(in.read_end), Pipe::shut(out.write_end), Pipe::shut(err.write_end);
  if (status != 0) {
    result.exit_code = 127;
    result.errors = arguments[0] + ": cannot be started";
    return result;
  }
  // A program that ends before it has read all must not end this one.
  struct sigaction ignore = {}, before = {};
  ignore.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &ignore, &before);
  converse(in, out, err, input, result);
  sigaction(SIGPIPE, &before, nullptr);
  int code = 0;
  while (waitpid(child, &code, 0) < 0 && errno == EINTR) {
  }
  result.exit_code = WIFEXITED(code) ? WEXITSTATUS(code) : 128 + WTERMSIG(code);
  return result;
}

}  // namespace metal_on_cpu
