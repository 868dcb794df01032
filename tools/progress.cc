#include "progress.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>

#include "platform.h"
#include "printable.h"
#include "terminal.h"

namespace metal_marlin::tools {
namespace {

using namespace std::chrono_literals;

}  // namespace

Progress::Progress(std::string what, double total)
    : what_(std::move(what)),
      total_(total),
      terminal_(is_terminal(stderr)),
      start_(std::chrono::steady_clock::now()) {}

Progress::~Progress() { hide(); }

void Progress::hide() {
  if (shown_) fmt::print(stderr, "\r\033[K");
  shown_ = false;
}

std::string duration_text(double seconds) {
  const int64_t s = std::llround(std::clamp(seconds, 0.0, 1e9));
  if (s < 60) return fmt::format("{} s", s);
  if (s < 3600) return fmt::format("{} min {} s", s / 60, s % 60);
  return fmt::format("{} h {} min", s / 3600, s % 3600 / 60);
}

void Progress::at(double done, const std::string& now) {
  if (!terminal_ || total_ <= 0) return;
  const auto time = std::chrono::steady_clock::now();
  if (time - start_ < 1s || time - drawn_ < 100ms) return;
  drawn_ = time;
  shown_ = true;
  constexpr size_t kBar = 30;
  const double part = std::clamp(done / total_, 0.0, 1.0);
  const auto full = static_cast<size_t>(part * kBar);
  const double elapsed = std::chrono::duration<double>(time - start_).count();
  const std::string left =
      part > 0 ? ", " + duration_text(elapsed * (1 - part) / part) + " left" : "";
  std::string line = fmt::format("{} [{}{}] {:3.0f}%{}  {}", what_, std::string(full, '#'),
                                 std::string(kBar - full, '.'), part * 100, left, printable(now));
  // A line that wraps could not be erased.
  if (const size_t width = terminal_width(stderr); width > 0 && line.size() >= width)
    line.resize(width - 1);
  fmt::print(stderr, "\r\033[K{}", line);
  std::fflush(stderr);
}

}  // namespace metal_marlin::tools
