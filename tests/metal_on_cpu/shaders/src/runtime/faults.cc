#include "faults.h"

#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <mutex>

#include "worker.h"

namespace metal_on_cpu {
namespace {

constexpr int kTimer = SIGXCPU;
constexpr int kSignals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, kTimer};  // the timer's is the last
constexpr long kSecond = 1'000'000'000;                                // in nanoseconds
constexpr size_t kSignalStack = 64 << 10;

std::mutex g_mutex;
int g_catchers = 0;
struct sigaction g_before[std::size(kSignals)];

struct Fault {
  int signal;
  uintptr_t pc, address;
  bool write;
  bool no_address;  // the processor does not tell it: it is misaligned, or not one that can exist
  bool reporting;   // being made a finding
};
thread_local constinit Fault t_fault __attribute__((tls_model("initial-exec"))) = {};

// The address as a return address would be, one past; if it has no line (it may be in a function of the host), the kernel.
Where fault_place(const Worker& w) {
  const msl::Kernel& kernel = *w.job().kernel;
  return {t_fault.pc + 1, kernel.file, kernel.first_line};
}

// Whether the code there is a move of a vector that needs its own size as alignment: [v]movaps, [v]movdqa, [v]movntps and such.
bool aligned_move([[maybe_unused]] uintptr_t pc) {
#if defined(__x86_64__)
  const auto* code = reinterpret_cast<const uint8_t*>(pc);
  bool operand_size = false;
  if (*code == 0xc5 || *code == 0xc4) {  // VEX of two or three bytes; its last two bits are the prefix
    code += *code == 0xc5 ? 1 : 2;
    operand_size = (*code++ & 3) == 1;
  } else {
    while (*code == 0x66 || (*code & 0xf0) == 0x40) operand_size = operand_size || *code == 0x66, code++;
    if (*code++ != 0x0f) return false;
  }
  const uint8_t opcode = *code;
  return opcode == 0x28 || opcode == 0x29 || opcode == 0x2b || opcode == 0xe7 ||
         (operand_size && (opcode == 0x6f || opcode == 0x7f));
#else
  return false;
#endif
}

// What is known of an access to memory that the system refuses.
Worker::Beside refused_access(const Worker& w) {
  Worker::Beside found;
  if (t_fault.no_address) {
    const bool misaligned = t_fault.signal == SIGBUS || aligned_move(t_fault.pc);
    found.kind = misaligned ? "misaligned-access" : "wild-pointer";
    found.message = misaligned ? "touches a vector or a struct at an address that its type does not allow"
                               : "touches an address that cannot exist";
    return found;
  }
  found = w.beside(t_fault.address, t_fault.write);
  if (found.kind) return found;
  found.kind = t_fault.address < kPage ? "null-pointer" : "wild-pointer";
  char text[48];
  std::snprintf(text, sizeof text, "%s address 0x%zx", t_fault.write ? "writes" : "reads",
                static_cast<size_t>(t_fault.address));
  found.message = text;
  return found;
}

// Runs on the fiber, outside of the handler: the memory of the log may be taken here.
void report_fault() {
  Worker* w = Worker::current();
  Worker::Beside found;
  if (t_fault.signal == SIGFPE) {
    found.kind = "division-by-zero";
    found.message = "an integer division by zero, or of the least integer by -1";
  } else if (t_fault.signal == SIGILL) {
    found.kind = "crash";
    found.message = "code that cannot be reached, or not be executed here";
  } else {
    found = refused_access(*w);
  }
  if (Finding* f = w->report(found.kind, fault_place(*w), found.buffer)) f->message = found.message, f->offset = found.offset;
  t_fault.reporting = false;
  w->abandon();
}

void report_time_limit() {
  Worker* w = Worker::current();
  w->end_in_time(fault_place(*w));
}

uintptr_t program_counter(const ucontext_t& context) {
#if defined(__x86_64__)
  return static_cast<uintptr_t>(context.uc_mcontext.gregs[REG_RIP]);
#else
  return context.uc_mcontext.pc;
#endif
}

bool writes(const ucontext_t& context) {
#if defined(__x86_64__)
  return context.uc_mcontext.gregs[REG_ERR] & 2;
#else
  // The exception syndrome is one of the records behind the registers; its bit 6 tells a write.
  const auto* record = reinterpret_cast<const _aarch64_ctx*>(context.uc_mcontext.__reserved);
  while (record->magic != 0 && record->magic != ESR_MAGIC)
    record = reinterpret_cast<const _aarch64_ctx*>(reinterpret_cast<const char*>(record) + record->size);
  return record->magic == ESR_MAGIC && (reinterpret_cast<const esr_context*>(record)->esr >> 6 & 1);
#endif
}

// Has the fiber go on with `function` on an empty stack. What it was doing is lost.
void redirect(ucontext_t& context, const Worker& w, void (*function)()) {
#if defined(__x86_64__)
  context.uc_mcontext.gregs[REG_RIP] = reinterpret_cast<greg_t>(function);
  context.uc_mcontext.gregs[REG_RSP] = static_cast<greg_t>(w.fresh_stack() - 8);  // as after a call
#else
  context.uc_mcontext.pc = reinterpret_cast<uintptr_t>(function);
  context.uc_mcontext.sp = w.fresh_stack();
#endif
}

// As if our handler had never been here: the instruction will fault again.
void hand_back(int signal) {
  for (size_t i = 0; i < std::size(kSignals); ++i) {
    if (kSignals[i] == signal) sigaction(signal, &g_before[i], nullptr);
  }
}

// A signal of the timer's kind that someone else sent.
void hand_on(int signal, siginfo_t* info, void* data) {
  const struct sigaction& before = *std::rbegin(g_before);
  if (before.sa_flags & SA_SIGINFO) return before.sa_sigaction(signal, info, data);
  if (before.sa_handler == SIG_DFL) {
    hand_back(signal);
    raise(signal);
  } else if (before.sa_handler != SIG_IGN) {
    before.sa_handler(signal);
  }
}

// The shader has written over what its host needs to go on.
void give_up(int signal) {
  static constexpr char kText[] =
      "metal-on-cpu: a kernel in fast mode has destroyed memory of its host; checked mode says where\n";
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, kText, sizeof kText - 1);
  hand_back(signal);
}

void handle_fault(int signal, siginfo_t* info, void* data) {
  const Worker* w = Worker::current();
  auto& context = *static_cast<ucontext_t*>(data);
  if (!w || !w->lane()) return hand_back(signal);
  if (!w->on_fiber() || t_fault.reporting) return give_up(signal);
  const bool no_address = signal == SIGSEGV ? info->si_code == SI_KERNEL : signal == SIGBUS && info->si_code == BUS_ADRALN;
  t_fault = {signal, program_counter(context), reinterpret_cast<uintptr_t>(info->si_addr), writes(context), no_address, true};
  redirect(context, *w, &report_fault);
}

void handle_timer(int signal, siginfo_t* info, void* data) {
  if (info->si_code != SI_TIMER || info->si_value.sival_ptr != &t_fault) return hand_on(signal, info, data);
  const Worker* w = Worker::current();
  auto& context = *static_cast<ucontext_t*>(data);
  const uintptr_t pc = program_counter(context);
  if (!w || !w->on_fiber() || !w->job().image->contains(pc)) return;  // the timer will come again
  t_fault = {signal, pc, 0, false, false, false};
  redirect(context, *w, &report_time_limit);
}

}  // namespace

FaultCatcher::FaultCatcher() {
  const std::lock_guard<std::mutex> lock(g_mutex);
  if (g_catchers++ > 0) return;
  for (size_t i = 0; i < std::size(kSignals); ++i) {
    struct sigaction action = {};
    action.sa_sigaction = kSignals[i] == kTimer ? handle_timer : handle_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
    sigaddset(&action.sa_mask, kTimer);
    sigaction(kSignals[i], &action, &g_before[i]);
  }
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

TimeLimit::TimeLimit(double seconds) {
  if (seconds <= 0) return;
#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid  // glibc before 2.38 has no name for it
#endif
  sigevent event{};
  event.sigev_notify = SIGEV_THREAD_ID;
  event.sigev_signo = kTimer;
  event.sigev_value.sival_ptr = &t_fault;  // a signal with this address is ours
  event.sigev_notify_thread_id = static_cast<pid_t>(syscall(SYS_gettid));
  itimerspec times{};
  const auto nanoseconds = static_cast<int64_t>(std::clamp(seconds * 1e9, 1.0, 1e18));
  times.it_value = {nanoseconds / kSecond, nanoseconds % kSecond};
  times.it_interval = {0, kSecond / 1000};
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, kTimer);
  good_ = running_ = timer_create(CLOCK_THREAD_CPUTIME_ID, &event, &timer_) == 0;
  if (!running_) return;
  pthread_sigmask(SIG_UNBLOCK, &set, &before_);
  timer_settime(timer_, 0, &times, nullptr);
}

TimeLimit::~TimeLimit() {
  if (!running_) return;
  timer_delete(timer_);  // a signal of it that waits arrives on the way out of this call
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

}  // namespace metal_on_cpu
