// The chat as a function: its command line, in one process or in several.
#pragma once

#include <functional>
#include <string>

#include "ranks.h"

namespace llm {

/// The processes that share the model of this path, which may become another one: each rank of a
/// packed container has a file of its own. They live as long as the chat.
using RanksOfModel = std::function<Ranks*(std::string& model)>;

/// Does what a command line says and returns the exit code. `program` is its name in messages.
/// ranks_of: empty for one process. What goes wrong is an exception.
int chat_main(int argc, char** argv, const char* program, const RanksOfModel& ranks_of = {});

}  // namespace llm
