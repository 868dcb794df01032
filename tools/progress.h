// A progress bar on stderr for work that takes more than a second, with the remaining time. It
// prints nothing if stderr is not a terminal.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

namespace metal_marlin::tools {

/// "12 s", "3 min 20 s", "1 h 5 min".
std::string duration_text(double seconds);

class Progress {
 public:
  /// `total` is the number of steps in any unit; 0 is allowed.
  Progress(std::string what, double total);
  /// Removes the bar from the screen.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// `done` steps of the total are done; `now` names the current step. Draws at most ten times per
  /// second.
  void at(double done, const std::string& now = {});
  /// Removes the bar from the screen until the next at(), for a line of other output.
  void hide();

 private:
  std::string what_;
  double total_;
  bool terminal_, shown_ = false;
  std::chrono::steady_clock::time_point start_, drawn_;
};

}  // namespace metal_marlin::tools
