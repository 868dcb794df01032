#include "line_reader.h"

#include <pthread.h>
#include <sys/select.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>

#if defined(METAL_MARLIN_LIBEDIT)
#include <histedit.h>

#include <clocale>
#include <string_view>

#include "unicode.h"
#endif

namespace llm {
namespace {

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

}  // namespace

#if defined(METAL_MARLIN_LIBEDIT)

bool edits_lines() { return true; }

class LineReader::Editor {
 public:
  explicit Editor(volatile std::sig_atomic_t* interrupted)
      : interrupted_(interrupted),
        edit_(el_init("metal-marlin-chat", stdin, stdout, stderr)),
        history_(history_init()) {
    HistEvent event;
    history(history_, &event, H_SETSIZE, 1000);
    history(history_, &event, H_SETUNIQUE, 1);
    el_set(edit_, EL_CLIENTDATA, this);
    el_set(edit_, EL_EDITOR, "emacs");
    el_set(edit_, EL_PROMPT, prompt_of);
    el_set(edit_, EL_HIST, history, history_);
    el_set(edit_, EL_GETCFN, read_character);
    // Between two lines, too, the terminal hands on characters as they are typed. Where it gathers
    // lines, a Ctrl-D that is typed early is no character, and would be lost to the next line.
    el_set(edit_, EL_SETTY, "-x", "-icanon", "-echo", nullptr);
  }
  ~Editor() {
    el_end(edit_);
    history_end(history_);
  }
  Editor(const Editor&) = delete;
  Editor& operator=(const Editor&) = delete;

  /// It moves the cursor and converts text by the locale, and texts here are UTF-8.
  static bool is_possible() {
    const char* term = std::getenv("TERM");
    if (term == nullptr || std::strcmp(term, "dumb") == 0) return false;
    if (isatty(STDIN_FILENO) == 0 || isatty(STDOUT_FILENO) == 0) return false;
    return (std::setlocale(LC_CTYPE, "") != nullptr && MB_CUR_MAX > 1) ||
           std::setlocale(LC_CTYPE, "C.UTF-8") != nullptr;
  }

  std::optional<std::string> next(const std::string& prompt) {
    prompt_ = prompt;
    int count = 0;
    const char* line = el_gets(edit_, &count);
    if (line == nullptr || count <= 0) return std::nullopt;
    std::string text(line, static_cast<size_t>(count));
    if (text.back() == '\n') text.pop_back();
    HistEvent event;
    if (!text.empty()) history(history_, &event, H_ENTER, text.c_str());
    return text;
  }

 private:
  static Editor& of(EditLine* edit) {
    void* self = nullptr;
    el_get(edit, EL_CLIENTDATA, &self);
    return *static_cast<Editor*>(self);
  }
  static char* prompt_of(EditLine* edit) { return of(edit).prompt_.data(); }

  /// 1 and a character, 0 at the end of the input and after Ctrl-C.
  static int read_character(EditLine* edit, wchar_t* out) {
    char bytes[4];
    for (size_t count = 0; count < sizeof bytes;) {
      if (!wait_for_input(of(edit).interrupted_)) return 0;
      if (read(STDIN_FILENO, bytes + count, 1) != 1) return 0;
      const Character found = first_character({bytes, ++count});
      if (found.code == kInvalid) continue;  // its other bytes are still to come
      *out = static_cast<wchar_t>(found.code);
      return 1;
    }
    *out = L'\uFFFD';
    return 1;
  }

  volatile std::sig_atomic_t* interrupted_;
  EditLine* edit_;
  History* history_;
  std::string prompt_;
};

#else

bool edits_lines() { return false; }

class LineReader::Editor {
 public:
  explicit Editor(volatile std::sig_atomic_t*) {}
  static bool is_possible() { return false; }
  std::optional<std::string> next(const std::string&) { return std::nullopt; }
};

#endif

LineReader::LineReader(volatile std::sig_atomic_t* interrupted) : interrupted_(interrupted) {
  if (Editor::is_possible()) editor_ = std::make_unique<Editor>(interrupted);
}
LineReader::~LineReader() = default;

std::optional<std::string> LineReader::next(const std::string& prompt) {
  *interrupted_ = 0;
  if (editor_) return editor_->next(prompt);
  if (isatty(STDIN_FILENO) != 0) {
    std::fputs(prompt.c_str(), stdout);
    std::fflush(stdout);
    if (!wait_for_input(interrupted_)) return std::nullopt;
  }
  std::string line;
  if (!std::getline(std::cin, line)) return std::nullopt;
  if (!line.empty() && line.back() == '\r') line.pop_back();
  return line;
}

}  // namespace llm
