#include "faults.h"

#include <csignal>
#include <cstdlib>
#include <mutex>

#include <ucontext.h>

#include "worker.h"

namespace metal_on_cpu {
namespace {

constexpr int kSignals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
constexpr size_t kSignalStack = 64 << 10;

std::mutex g_mutex;
int g_catchers = 0;
struct sigaction g_before[4];

struct Fault {
  int signal;
  uintptr_t pc, address;
};
thread_local Fault t_fault;

// Runs on the fiber, outside of the handler: the memory of the log may be taken here.
void report_fault() {
  Worker* w = Worker::current();
  const char* kind = "crash";
  std::string message;
  switch (t_fault.signal) {
    case SIGFPE:
      kind = "division-by-zero";
      message = "an integer division by zero, or of the least integer by -1";
      break;
    case SIGILL:
      message = "code that cannot be reached, or not be executed here";
      break;
    default:
      if (t_fault.address < kPage) kind = "null-pointer";
      char text[48];
      std::snprintf(text, sizeof text, "touches address 0x%zx", static_cast<size_t>(t_fault.address));
      message = text;
      if (w->in_stacks(t_fault.address)) kind = "stack-overflow", message = "the thread's variables need more than its stack";
  }
  // One past, as a return address would be.
  if (Finding* f = w->report(kind, Where::address(reinterpret_cast<const void*>(t_fault.pc + 1)))) f->message = message;
  w->abandon();
}

void handle(int signal, siginfo_t* info, void* data) {
  Worker* w = Worker::current();
  auto* context = static_cast<ucontext_t*>(data);
  if (!w || !w->lane() || !w->job().image) {
    // Not ours: as if this handler had never been here.
    for (size_t i = 0; i < std::size(kSignals); ++i) {
      if (kSignals[i] == signal) sigaction(signal, &g_before[i], nullptr);
    }
    return;
  }
#if defined(__x86_64__)
  greg_t& pc = context->uc_mcontext.gregs[REG_RIP];
  greg_t& sp = context->uc_mcontext.gregs[REG_RSP];
  t_fault = {signal, static_cast<uintptr_t>(pc), reinterpret_cast<uintptr_t>(info->si_addr)};
  pc = reinterpret_cast<greg_t>(&report_fault);
  sp = static_cast<greg_t>(w->fresh_stack() - 8);  // as after a call
#elif defined(__aarch64__)
  t_fault = {signal, static_cast<uintptr_t>(context->uc_mcontext.pc), reinterpret_cast<uintptr_t>(info->si_addr)};
  context->uc_mcontext.pc = reinterpret_cast<uintptr_t>(&report_fault);
  context->uc_mcontext.sp = w->fresh_stack();
#endif
}

}  // namespace

FaultCatcher::FaultCatcher() {
  const std::lock_guard<std::mutex> lock(g_mutex);
  if (g_catchers++ > 0) return;
  struct sigaction action = {};
  action.sa_sigaction = handle;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  for (size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i], &action, &g_before[i]);
}

FaultCatcher::~FaultCatcher() {
  const std::lock_guard<std::mutex> lock(g_mutex);
  if (--g_catchers > 0) return;
  for (size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i], &g_before[i], nullptr);
}

SignalStack::SignalStack() : memory_(std::malloc(kSignalStack)) {
  stack_t stack{};
  stack.ss_sp = memory_, stack.ss_size = kSignalStack;
  if (memory_) sigaltstack(&stack, nullptr);
}

SignalStack::~SignalStack() {
  stack_t off{};
  off.ss_flags = SS_DISABLE;
  sigaltstack(&off, nullptr);
  std::free(memory_);
}

}  // namespace metal_on_cpu
