// Lines that a user types, with editing and history where the program was built with libedit.
#pragma once

#include <csignal>
#include <memory>
#include <optional>
#include <string>

namespace llm {

/// Whether this build has libedit.
bool edits_lines();

class LineReader {
 public:
  /// *interrupted is what a handler of SIGINT sets, which must be installed without SA_RESTART.
  explicit LineReader(volatile std::sig_atomic_t* interrupted);
  ~LineReader();
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  /// The next line without its end; nothing at the end of the input, and after Ctrl-C. Ctrl-C drops
  /// a line that is not complete first. With libedit, lines that are pasted together are one.
  std::optional<std::string> next(const std::string& prompt);

 private:
  class Editor;
  volatile std::sig_atomic_t* interrupted_;
  std::unique_ptr<Editor> editor_;  // null: lines come as the terminal gives them
};

}  // namespace llm
