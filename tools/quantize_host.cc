#include "quantize_host.h"

#include <fmt/core.h>

#include <csignal>

#include "parallel.h"
#include "printable.h"

namespace metal_marlin::tools {
namespace {

#if defined(_WIN32)
constexpr int kSignals[] = {SIGINT, SIGTERM, SIGBREAK};
#else
constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP};
#endif
volatile std::sig_atomic_t interrupted_by = 0;
void interrupt(int signal) { interrupted_by = signal; }

}  // namespace

ConvertHost::ConvertHost(unsigned threads) : threads_(threads), bar_("quantizing", 1) {
  for (const int signal : kSignals) {
    // Signals that the parent ignored (nohup, a job in the background) stay ignored.
    if (std::signal(signal, interrupt) == SIG_IGN) (void)std::signal(signal, SIG_IGN);
  }
}

ConvertHost::~ConvertHost() {
  bar_.hide();
  for (const std::string& line : warnings_.repeated())
    fmt::print(stderr, "metal-marlin: {}\n", printable(line));
  for (const int signal : kSignals) {
    if (std::signal(signal, SIG_DFL) == SIG_IGN) (void)std::signal(signal, SIG_IGN);
  }
}

void ConvertHost::end_if_interrupted() {
  if (interrupted_by == 0) return;
  (void)std::signal(interrupted_by, SIG_DFL);
  (void)std::raise(interrupted_by);
}

int32_t ConvertHost::progress(uint64_t done, uint64_t total, const char* layer) {
  bar_.at(total == 0 ? 0 : static_cast<double>(done) / static_cast<double>(total), layer);
  return interrupted_by != 0 ? 1 : 0;
}

void ConvertHost::log(const char* message) {
  const size_t known = warnings_.size();
  if (warnings_.add("", message) <= known) return;
  bar_.hide();
  fmt::print(stderr, "metal-marlin: {}\n", printable(message));
}

void ConvertHost::attach(marlin_convert_desc& desc) {
  desc.user = this;
  desc.progress = [](void* user, uint64_t done, uint64_t total, const char* layer) {
    return static_cast<ConvertHost*>(user)->progress(done, total, layer);
  };
  desc.layer_done = [](void* user, const marlin_convert_outcome* outcome) {
    static_cast<ConvertHost*>(user)->outcomes_.push_back(
        {*outcome, outcome->name, outcome->reason});
  };
  desc.log = [](void* user, int32_t, const char* message) {
    static_cast<ConvertHost*>(user)->log(message);
  };
  desc.parallel_for = [](void* user, uint32_t tasks, void (*task)(void*, uint32_t),
                         void* task_user) {
    parallel_for(tasks, static_cast<ConvertHost*>(user)->threads_,
                 [&](int64_t i) { task(task_user, static_cast<uint32_t>(i)); });
  };
}

}  // namespace metal_marlin::tools
