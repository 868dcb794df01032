// Threads that are joined when they go out of scope. The libc++ of macOS before LLVM 20 has no
// std::jthread.
#pragma once

#include <thread>
#include <utility>
#include <vector>

namespace metal_marlin::tools {

class Threads {
 public:
  Threads() = default;
  ~Threads() { join(); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

  template <class... Work>
  void start(Work&&... work) {
    threads_.emplace_back(std::forward<Work>(work)...);
  }
  void join() {
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

 private:
  std::vector<std::thread> threads_;
};

}  // namespace metal_marlin::tools
