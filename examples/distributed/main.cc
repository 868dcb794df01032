// metal-marlin-chat-mpi: the chat of examples/llm on several ranks, which share the model.
//   mpirun -n 2 metal-marlin-chat-mpi MODEL.gguf
// Every rank holds columns of q, k, v, gate and up, rows of attention out and down, and a part of
// the vocabulary. Rank 0 reads and writes; the others serve it.
#include <mpi.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <string>

#include "../llm/chat_main.h"
#include "identity.h"
#include "mpi_ranks.h"

namespace {

constexpr const char* kProgram = "metal-marlin-chat-mpi";
char ended[128];  // the message of a rank that mpirun ends, made before it is needed

/// mpirun ends all ranks when one has died, and says which.
void on_end(int) {
  (void)!write(STDERR_FILENO, ended, std::strlen(ended));
  _exit(1);
}

double patience() {
  const char* const text = std::getenv("METAL_MARLIN_MPI_TIMEOUT");
  const double seconds = text ? std::strtod(text, nullptr) : 0;
  return seconds > 0 ? seconds : 60;
}

}  // namespace

int main(int argc, char** argv) {
  std::unique_ptr<distributed::MpiRanks> ranks;
  int code = 1;
  std::string who = kProgram;
  try {
    ranks = std::make_unique<distributed::MpiRanks>(&argc, &argv, patience());
    who += ": rank " + std::to_string(ranks->rank()) + " of " + std::to_string(ranks->count());
    std::snprintf(ended, sizeof ended, "%s: ended, because another rank has failed\n", who.c_str());
    std::signal(SIGTERM, on_end);
    code = llm::chat_main(argc, argv, kProgram, [&](std::string& model) -> llm::Ranks* {
      model = distributed::path_of_rank(model, ranks->rank());
      std::string error;
      distributed::Identity own;
      try {
        own = distributed::identity_of(model);
      } catch (const std::exception& e) {
        error = e.what();
      }
      ranks->agree(error);
      ranks->compare(own);
      return ranks.get();
    });
    ranks.reset();
    return code;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", who.c_str(), error.what());
  }
  // Errors that all ranks have agreed on end each of them here; of others mpirun tells the rest.
  std::fflush(nullptr);
  if (ranks) {
    sleep(1);  // so that every rank has said what it knows
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  return 1;
}
