// Ranks over MPI. No call waits for ever: a rank that does not answer is an error that names it.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <string>
#include <vector>

#include "../llm/ranks.h"
#include "identity.h"

namespace distributed {

class MpiRanks final : public llm::Ranks {
 public:
  /// seconds: how long a rank waits for the others before it asks who is alive.
  MpiRanks(int* argc, char*** argv, double seconds);
  /// Ends MPI, which must have been used without an error.
  ~MpiRanks() override;
  MpiRanks(const MpiRanks&) = delete;

  int64_t rank() const override { return rank_; }
  int64_t count() const override { return count_; }
  void sum(std::span<float> values) override;
  void gather(std::span<const float> part, std::span<float> all) override;
  void broadcast(std::span<std::byte> bytes) override;
  void agree(const std::string& error) override;
  /// Compares what the ranks have: std::runtime_error on every rank if they differ.
  void compare(const Identity& own);

  /// Seconds in these calls and bytes that this rank gave to them, so far.
  double seconds() const { return spent_; }
  uint64_t bytes() const { return bytes_; }

 private:
  /// Waits for a call that has begun, called `what` in messages.
  void finish(MPI_Request request, const char* what, uint64_t bytes);
  [[noreturn]] void name_the_missing(const char* what);
  static void check(int code, const char* what);

  double patience_;
  int rank_ = 0, count_ = 1;
  double spent_ = 0;
  uint64_t bytes_ = 0;
};

}  // namespace distributed
