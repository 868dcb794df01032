#include "mpi_ranks.h"

#include <sched.h>
#include <time.h>

#include <chrono>
#include <cstring>
#include <stdexcept>

namespace distributed {
namespace {

constexpr int kAlive = 1;          // the tag of messages between ranks that wait in vain
constexpr double kAnswerTime = 5;  // seconds in which a rank that is alive notices, too
constexpr int kMostText = 512;     // of an error that ranks exchange

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Waiting takes little of a processor that other ranks need, and finds a quick answer at once.
void pause(int round) {
  if (round < 20000) return;
  if (round < 40000) {
    sched_yield();
    return;
  }
  const timespec nap{0, 200000};
  nanosleep(&nap, nullptr);
}

}  // namespace

MpiRanks::MpiRanks(int* argc, char*** argv, double seconds) : patience_(seconds) {
  int provided = 0;
  check(MPI_Init_thread(argc, argv, MPI_THREAD_FUNNELED, &provided), "starting MPI");
  check(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "starting MPI");
  check(MPI_Comm_rank(MPI_COMM_WORLD, &rank_), "asking for the rank");
  check(MPI_Comm_size(MPI_COMM_WORLD, &count_), "asking for the number of ranks");
}

MpiRanks::~MpiRanks() { MPI_Finalize(); }

void MpiRanks::check(int code, const char* what) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int size = 0;
  MPI_Error_string(code, text, &size);
  throw std::runtime_error(std::string(what) + ": " + text);
}

void MpiRanks::finish(MPI_Request request, const char* what, uint64_t bytes) {
  const double begun = now();
  int done = 0;
  for (int round = 0;; ++round) {
    check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), what);
    if (done) break;
    if (round % 1000 == 999 && now() - begun > patience_) name_the_missing(what);
    pause(round);
  }
  spent_ += now() - begun;
  bytes_ += bytes;
}

/// Ranks that are alive come here, too, because the same call has not ended for them. Each tells
/// the others so, and whoever does not is named.
void MpiRanks::name_the_missing(const char* what) {
  std::vector<MPI_Request> sent(static_cast<size_t>(count_)), received(static_cast<size_t>(count_));
  std::vector<int> there(static_cast<size_t>(count_));
  const int here = rank_;
  for (int other = 0; other < count_; ++other) {
    const auto i = static_cast<size_t>(other);
    if (other == rank_) continue;
    MPI_Isend(&here, 1, MPI_INT, other, kAlive, MPI_COMM_WORLD, &sent[i]);
    MPI_Irecv(&there[i], 1, MPI_INT, other, kAlive, MPI_COMM_WORLD, &received[i]);
  }
  std::vector<bool> alive(static_cast<size_t>(count_));
  alive[static_cast<size_t>(rank_)] = true;
  for (const double end = now() + kAnswerTime; now() < end; pause(40000)) {
    for (int other = 0; other < count_; ++other) {
      const auto i = static_cast<size_t>(other);
      int done = 0;
      if (!alive[i] && MPI_Test(&received[i], &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && done)
        alive[i] = true;
    }
  }
  std::string missing;
  for (int other = 0; other < count_; ++other)
    if (!alive[static_cast<size_t>(other)])
      missing += (missing.empty() ? "" : ", ") + std::to_string(other);
  throw std::runtime_error(
      std::string(what) + ": expected all " + std::to_string(count_) + " ranks within " +
      std::to_string(static_cast<int>(patience_)) + " s, found no answer of rank " +
      (missing.empty() ? "- (all are alive and wait for each other)" : missing));
}

void MpiRanks::sum(std::span<float> values) {
  MPI_Request request;
  check(MPI_Iallreduce(MPI_IN_PLACE, values.data(), static_cast<int>(values.size()), MPI_FLOAT,
                       MPI_SUM, MPI_COMM_WORLD, &request),
        "summing");
  finish(request, "summing", values.size_bytes());
}

void MpiRanks::gather(std::span<const float> part, std::span<float> all) {
  const int own = static_cast<int>(part.size());
  std::vector<int> sizes(static_cast<size_t>(count_)), places(static_cast<size_t>(count_));
  MPI_Request request;
  check(MPI_Iallgather(&own, 1, MPI_INT, sizes.data(), 1, MPI_INT, MPI_COMM_WORLD, &request),
        "gathering sizes");
  finish(request, "gathering sizes", sizeof own);
  for (size_t i = 1; i < sizes.size(); ++i) places[i] = places[i - 1] + sizes[i - 1];
  const size_t total = static_cast<size_t>(places.back()) + static_cast<size_t>(sizes.back());
  if (total != all.size())
    throw std::runtime_error("gathering: expected " + std::to_string(all.size()) +
                             " numbers of all ranks, found " + std::to_string(total));
  check(MPI_Iallgatherv(part.data(), own, MPI_FLOAT, all.data(), sizes.data(), places.data(),
                        MPI_FLOAT, MPI_COMM_WORLD, &request),
        "gathering");
  finish(request, "gathering", part.size_bytes());
}

void MpiRanks::broadcast(std::span<std::byte> bytes) {
  MPI_Request request;
  check(MPI_Ibcast(bytes.data(), static_cast<int>(bytes.size()), MPI_BYTE, 0, MPI_COMM_WORLD,
                   &request),
        "waiting for rank 0");
  // Rank 0 may wait for a person: while it does, the others have no deadline.
  const double patience = patience_;
  if (rank_ != 0) patience_ = 1e9;
  finish(request, "waiting for rank 0", rank_ == 0 ? bytes.size() : 0);
  patience_ = patience;
}

void MpiRanks::agree(const std::string& error) {
  char own[kMostText] = "";
  std::strncpy(own, error.c_str(), sizeof own - 1);
  std::vector<char> all(static_cast<size_t>(count_) * kMostText);
  MPI_Request request;
  check(MPI_Iallgather(own, kMostText, MPI_CHAR, all.data(), kMostText, MPI_CHAR, MPI_COMM_WORLD,
                       &request),
        "loading");
  finish(request, "loading", kMostText);
  for (int i = 0; i < count_; ++i) {
    const char* const text = all.data() + static_cast<size_t>(i) * kMostText;
    if (text[0] != '\0') throw std::runtime_error("rank " + std::to_string(i) + ": " + text);
  }
}

void MpiRanks::compare(const Identity& own) {
  std::vector<Identity> all(static_cast<size_t>(count_));
  MPI_Request request;
  check(MPI_Iallgather(&own, sizeof own, MPI_BYTE, all.data(), sizeof own, MPI_BYTE, MPI_COMM_WORLD,
                       &request),
        "comparing models");
  finish(request, "comparing models", sizeof own);
  const std::string difference = first_difference(all);
  if (!difference.empty()) throw std::runtime_error(difference);
}

}  // namespace distributed
