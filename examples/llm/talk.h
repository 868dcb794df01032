// The talk on the terminal: messages, answers, commands that begin with a slash.
#pragma once

#include <csignal>
#include <string>

#include "conversation.h"
#include "sampler.h"

namespace llm {

class Talk {
 public:
  /// *interrupted is set by Ctrl-C, which ends an answer.
  Talk(Conversation& conversation, Sampler& sampler, int64_t most_tokens,
       volatile std::sig_atomic_t* interrupted)
      : conversation_(conversation),
        sampler_(sampler),
        most_tokens_(most_tokens),
        interrupted_(interrupted) {}

  /// One message and its answer. std::runtime_error: it is no UTF-8, or too long.
  End say(const std::string& message);
  /// Lines until the input ends, or Ctrl-C at the prompt. `notice` is shown first on a terminal.
  void run(const std::string& notice);

 private:
  /// A line that begins with a slash. False: the talk ends.
  bool command(const std::string& line);

  Conversation& conversation_;
  Sampler& sampler_;
  int64_t most_tokens_;
  volatile std::sig_atomic_t* interrupted_;
};

}  // namespace llm
