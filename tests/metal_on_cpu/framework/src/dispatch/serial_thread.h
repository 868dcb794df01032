// A thread that runs what it is given, in order. GPU queues and completion handlers each have one.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

namespace metal_framework {

class SerialThread {
 public:
  SerialThread();
  /// Everything given is still run. From the thread itself, it ends soon after; else it has ended on return.
  ~SerialThread();
  SerialThread(const SerialThread&) = delete;
  void run(std::function<void()> job);
  /// Whether, within so long, all threads have done all they were given, and have let go of it.
  static bool wait_until_idle(double seconds);
  bool is_current() const { return thread_.get_id() == std::this_thread::get_id(); }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<std::function<void()>> jobs;
    bool stop = false;
  };
  static void loop(const std::shared_ptr<State>& state);

  std::shared_ptr<State> state_ = std::make_shared<State>();
  std::thread thread_;
};

}  // namespace metal_framework
