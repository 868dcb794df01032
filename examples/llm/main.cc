// metal-marlin-chat: talk to a small language model in the terminal.
#include <cstdio>
#include <exception>

#include "chat_main.h"

int main(int argc, char** argv) {
  try {
    return llm::chat_main(argc, argv, "metal-marlin-chat");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "metal-marlin-chat: %s\n", error.what());
    return 1;
  }
}
