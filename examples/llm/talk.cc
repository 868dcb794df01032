#include "talk.h"

#include <pthread.h>
#include <sys/select.h>
#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <optional>
#include <stdexcept>
#include <string_view>

#include "unicode.h"

namespace llm {
namespace {

constexpr const char* kHelp =
    "/help        this list\n"
    "/reset       forget the conversation\n"
    "/quit        end the program, as Ctrl-D does\n"
    "Ctrl-C ends an answer or drops a line. A message that begins with a slash needs a space in "
    "front of it.\n";

void print(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

// Waits for input on stdin; false after Ctrl-C. The signal is let in only while pselect waits, so
// that none is lost between a look at the flag and the waiting.
bool wait_for_input(const volatile std::sig_atomic_t* interrupted) {
  sigset_t interrupt, before;
  sigemptyset(&interrupt);
  sigaddset(&interrupt, SIGINT);
  pthread_sigmask(SIG_BLOCK, &interrupt, &before);
  fd_set input;
  FD_ZERO(&input);
  FD_SET(STDIN_FILENO, &input);
  bool there = false;
  while (!*interrupted && !there) {
    // Another signal, as for a window's new size, ends it, too.
    there = pselect(STDIN_FILENO + 1, &input, nullptr, nullptr, nullptr, &before) > 0;
    if (!there) FD_SET(STDIN_FILENO, &input);
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return there;
}

// The next line without its end; nothing at the end of the input, and after a second Ctrl-C.
// *interrupted is what a handler of SIGINT sets, which must be installed without SA_RESTART.
std::optional<std::string> next_line(const char* prompt, volatile std::sig_atomic_t* interrupted) {
  *interrupted = 0;
  if (isatty(STDIN_FILENO) != 0) {
    print(prompt);
    if (!wait_for_input(interrupted)) {
      // The terminal has dropped what was typed, and does not say whether there was anything. A
      // second Ctrl-C may come as soon as the first is answered.
      *interrupted = 0;
      print("\n(Ctrl-C again ends the program, and so does Ctrl-D)\n");
      print(prompt);
      if (!wait_for_input(interrupted)) return std::nullopt;
    }
  }
  std::string line;
  if (!std::getline(std::cin, line)) return std::nullopt;
  if (!line.empty() && line.back() == '\r') line.pop_back();
  return line;
}

}  // namespace

End Talk::say(const std::string& message) {
  if (!is_utf8(message)) throw std::runtime_error("the message is no UTF-8");
  TextStream stream;
  const int64_t forgotten = conversation_.forgotten();
  *interrupted_ = 0;
  const End end = conversation_.answer(message, sampler_, most_tokens_, interrupted_,
                                       [&](std::string_view bytes) { print(stream.add(bytes)); });
  // Of an answer that was cut off, the last character may lack bytes: it is left out.
  if (end == End::finished) print(stream.finish());
  print("\n");
  if (conversation_.forgotten() > forgotten)
    std::fprintf(stderr, "(the context is full: the oldest exchanges are forgotten)\n");
  if (end == End::context_full)
    std::fprintf(stderr, "(the answer ends here: the context is full)\n");
  if (end == End::most_tokens) std::fprintf(stderr, "(the answer ends here: --max-tokens)\n");
  return end;
}

bool Talk::command(const std::string& line) {
  const std::string name = line.substr(0, line.find(' '));
  if (name == "/help") {
    print(kHelp);
  } else if (name == "/reset") {
    conversation_.reset();
    std::fprintf(stderr, "(the conversation is forgotten)\n");
  } else if (name == "/quit" || name == "/exit") {
    return false;
  } else {
    throw std::runtime_error("there is no command " + name + "; /help lists those that there are");
  }
  return true;
}

void Talk::run(const std::string& notice) {
  const bool terminal = isatty(STDIN_FILENO) != 0;
  if (terminal) print(notice + "Type a message; /help lists commands.\n");
  while (const std::optional<std::string> line = next_line("> ", interrupted_)) {
    if (line->empty()) continue;
    try {
      if (line->front() != '/')
        say(*line);
      else if (!command(*line))
        break;
    } catch (const std::runtime_error& error) {
      std::fprintf(stderr, "%s\n", error.what());
    }
  }
  if (terminal) print("\n");
}

}  // namespace llm
