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
    const char* line = nullptr;
    int count = 0;
    do {
      dropped_ = false;
      std::fputs("\x1B[?2004h", stdout);  // the terminal marks what is pasted
      line = el_gets(edit_, &count);
      std::fputs("\x1B[?2004l", stdout);
      std::fflush(stdout);
      if (dropped_) {  // by Ctrl-C: what was typed; the talk goes on
        *interrupted_ = 0;
        std::fputs("\n", stdout);
        el_reset(edit_);
      }
    } while (dropped_);
    if (line == nullptr || count <= 0) return std::nullopt;
    std::string text(line, static_cast<size_t>(count));
    if (text.back() == '\n') text.pop_back();
    HistEvent event;
    if (!text.empty()) history(history_, &event, H_ENTER, text.c_str());
    return replaced(replaced(text, kNewline, "\n"), kTab, "\t");
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
    Editor& self = of(edit);
    do {
      const std::optional<uint32_t> found = self.next_character();
      if (!found) return self.ended(edit);
      *out = static_cast<wchar_t>(self.pasting_ ? pasted(*found) : *found);
    } while (*out == 0);
    return 1;
  }

  /// 0, as libedit wants it at the end of a line that is not complete.
  int ended(EditLine* edit) {
    const LineInfo* const line = el_line(edit);
    dropped_ = *interrupted_ != 0 && line->lastchar > line->buffer;
    pasting_ = false;
    return 0;
  }

  // What the editor sees of a pasted character: newlines and tabs would end the line or move the
  // cursor, so signs stand for them until the line is complete. 0: nothing.
  static uint32_t pasted(uint32_t code) {
    if (code == '\r' || code == '\n') return first_character(kNewline).code;
    if (code == '\t') return first_character(kTab).code;
    return code < 0x20 || code == 0x7F ? 0 : code;
  }

  // Bytes that were read ahead come first. What begins and ends a paste is no character of its own.
  std::optional<uint32_t> next_character() {
    constexpr std::string_view kBegin = "\x1B[200~", kEnd = "\x1B[201~";
    std::string bytes;
    while (bytes.size() < kBegin.size()) {
      const std::optional<char> byte = next_byte();
      if (!byte) return std::nullopt;
      bytes += *byte;
      if (bytes == kBegin || bytes == kEnd) {
        pasting_ = bytes == kBegin;
        bytes.clear();
        continue;
      }
      if (kBegin.starts_with(bytes) || kEnd.starts_with(bytes)) continue;
      const Character found = first_character(bytes);
      if (found.code == kInvalid && bytes.size() < 4) continue;  // its other bytes are to come
      ahead_.insert(0, bytes.substr(found.bytes));
      return found.code == kInvalid ? uint32_t{0xFFFD} : found.code;
    }
    return std::nullopt;
  }

  std::optional<char> next_byte() {
    char byte = 0;
    if (!ahead_.empty()) {
      byte = ahead_.front();
      ahead_.erase(0, 1);
      return byte;
    }
    if (!wait_for_input(interrupted_) || read(STDIN_FILENO, &byte, 1) != 1) return std::nullopt;
    return byte;
  }

  static constexpr std::string_view kNewline = "\u2424", kTab = "\u2409";

  volatile std::sig_atomic_t* interrupted_;
  EditLine* edit_;
  History* history_;
  std::string prompt_, ahead_;
  bool dropped_ = false, pasting_ = false;
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
    if (!wait_for_input(interrupted_)) {
      // The terminal has dropped what was typed, and does not say whether there was anything. A
      // second Ctrl-C may come as soon as the first is answered.
      *interrupted_ = 0;
      std::fputs("\n(Ctrl-C again ends the program, and so does Ctrl-D)\n", stdout);
      std::fputs(prompt.c_str(), stdout);
      std::fflush(stdout);
      if (!wait_for_input(interrupted_)) return std::nullopt;
    }
  }
  std::string line;
  if (!std::getline(std::cin, line)) return std::nullopt;
  if (!line.empty() && line.back() == '\r') line.pop_back();
  return line;
}

}  // namespace llm
