#include "talk.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string_view>

#include "line_reader.h"
#include "unicode.h"
#include "word_wrap.h"

namespace llm {
namespace {

constexpr const char* kHelp =
    "/help        this list\n"
    "/reset       forget the conversation\n"
    "/save FILE   write the conversation to a new file\n"
    "/quit        end the program, as Ctrl-D does\n"
    "Ctrl-C ends an answer or drops a line. Lines that are pasted together are one message. "
    "A message that begins with a slash needs a space in front of it.\n";

void print(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

// 0: stdout is no terminal, and lines have any length.
size_t columns() {
  winsize size{};
  if (isatty(STDOUT_FILENO) == 0) return 0;
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

}  // namespace

End Talk::say(const std::string& message) {
  if (!is_utf8(message)) throw std::runtime_error("the message is no UTF-8");
  TextStream stream;
  WordWrap wrap(columns());
  std::string answer;
  const auto show = [&](const std::string& text) {
    answer += text;
    print(wrap.add(text));
  };
  const int64_t forgotten = conversation_.forgotten();
  *interrupted_ = 0;
  const End end = conversation_.answer(message, sampler_, most_tokens_, interrupted_,
                                       [&](std::string_view bytes) { show(stream.add(bytes)); });
  // Of an answer that was cut off, the last character may lack bytes: it is left out.
  if (end == End::finished) show(stream.finish());
  print(wrap.finish() + "\n");
  said_.emplace_back(message, answer);
  if (conversation_.forgotten() > forgotten)
    std::fprintf(stderr, "(the context is full: the oldest exchanges are forgotten)\n");
  if (end == End::context_full)
    std::fprintf(stderr, "(the answer ends here: the context is full)\n");
  if (end == End::most_tokens) std::fprintf(stderr, "(the answer ends here: --max-tokens)\n");
  return end;
}

void Talk::save(const std::string& path) const {
  if (path.empty()) throw std::runtime_error("/save: expected the name of a file");
  const std::unique_ptr<std::FILE, CloseFile> file(std::fopen(path.c_str(), "wx"));
  bool written = file != nullptr;
  for (const auto& [message, answer] : said_)
    written =
        written && std::fprintf(file.get(), "> %s\n\n%s\n\n", message.c_str(), answer.c_str()) > 0;
  if (!written || std::fflush(file.get()) != 0)
    throw std::runtime_error("/save: " + path + ": " + std::strerror(errno));
  std::fprintf(stderr, "(%zu exchange%s saved: %s)\n", said_.size(), said_.size() == 1 ? "" : "s",
               path.c_str());
}

bool Talk::command(const std::string& line) {
  const size_t space = line.find(' ');
  const std::string name = line.substr(0, space);
  const size_t begin = space == std::string::npos ? space : line.find_first_not_of(' ', space);
  const std::string rest = begin == std::string::npos ? "" : line.substr(begin);
  if (name == "/help") {
    print(kHelp);
  } else if (name == "/reset") {
    conversation_.reset();
    said_.clear();
    std::fprintf(stderr, "(the conversation is forgotten)\n");
  } else if (name == "/save") {
    save(rest);
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
  LineReader lines(interrupted_);
  while (const std::optional<std::string> line = lines.next("> ")) {
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
