// A progress bar on stderr for work that takes more than a second; silent when stderr is no terminal.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

namespace metal_marlin::tools {

class Progress {
 public:
  /// total: steps of any unit; 0 is fine.
  Progress(std::string what, double total);
  /// Removes the bar from the screen.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// `done` steps of the total are behind us; `now` names the one at hand. Draws at most ten times a second.
  void at(double done, const std::string& now = {});

 private:
  std::string what_;
  double total_;
  bool terminal_, shown_ = false;
  std::chrono::steady_clock::time_point start_, drawn_;
};

}  // namespace metal_marlin::tools
