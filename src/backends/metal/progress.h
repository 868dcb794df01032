// The progress of the command buffers of a stream. Completion is reported on a thread of Metal,
// possibly after the stream is gone.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <vector>

#include "base/status.h"

namespace metal_marlin::metal {

class Progress {
 public:
  void committed() {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++committed_;
  }
  void completed(const Status& status, double seconds) {
    std::vector<Waiting> ended;
    marlin_status failure = MARLIN_OK;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      ++completed_;
      seconds_ += seconds;
      if (failure_.ok()) failure_ = status;
      failure = failure_.code();
      const auto waits = [&](const Waiting& one) { return completed_ < one.target; };
      const auto last = std::find_if(waiting_.begin(), waiting_.end(), waits);
      ended.assign(waiting_.begin(), last);
      waiting_.erase(waiting_.begin(), last);
    }
    changed_.notify_all();
    for (const Waiting& one : ended) one.done(one.user, failure);
  }
  /// Calls `done` once when all work that is committed so far has ended: now, or on the thread that
  /// reports it.
  void notify(void (*done)(void* user, marlin_status status), void* user) {
    std::unique_lock<std::mutex> lock(mutex_);
    if (completed_ < committed_) {
      waiting_.push_back({committed_, done, user});
      return;
    }
    const marlin_status failure = failure_.code();
    lock.unlock();
    done(user, failure);
  }
  /// Waits for all work that is committed so far.
  Status wait(uint64_t timeout_ns) {
    constexpr uint64_t kForEver = uint64_t{1} << 60;  // 36 years; more would overflow the clock
    std::unique_lock<std::mutex> lock(mutex_);
    const uint64_t target = committed_;
    const auto done = [&] { return completed_ >= target; };
    if (timeout_ns >= kForEver)
      changed_.wait(lock, done);
    else if (!changed_.wait_for(lock, std::chrono::nanoseconds(timeout_ns), done))
      return Status::error(MARLIN_E_TIMEOUT, "%llu of %llu command buffers are done",
                           static_cast<unsigned long long>(completed_),
                           static_cast<unsigned long long>(target));
    busy_ = seconds_;
    seconds_ = 0;
    return failure_;
  }
  Status failure() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return failure_;
  }
  double busy_seconds() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return busy_;
  }

 private:
  struct Waiting {
    uint64_t target;
    void (*done)(void* user, marlin_status status);
    void* user;
  };
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t committed_ = 0, completed_ = 0;
  std::vector<Waiting> waiting_;   // for completed_ to reach their targets, the lowest first
  double seconds_ = 0, busy_ = 0;  // since the last wait, and of the work of that wait
  Status failure_;
};

}  // namespace metal_marlin::metal
