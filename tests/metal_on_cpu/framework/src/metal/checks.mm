#include "metal/checks.h"

#include <algorithm>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "dispatch/serial_thread.h"
#include "metal/source_library.h"
#include "metal_test_hooks.h"
#include "runtime/object.h"

namespace metal_framework {
namespace {

struct Finding {
  std::string kind, text;
  size_t repeats = 1;
};

constexpr int kFamily = 9;  // an M3
constexpr const char* kOsVersion = "Version 15.0 (simulated)";
constexpr double kTimeout = 5, kIdleSeconds = 1;
// MTLCommandBufferErrorDeviceRemoved, without the headers of Objective-C objects here
constexpr long kDeviceRemoved = 11;

struct State {
  std::mutex mutex;
  std::deque<Finding> findings;  // addresses stay
  std::map<Fault, size_t> countdown;
  size_t command_buffer_countdown = 0;
  CommandBufferFault command_buffer{0, false};
  long refusal = 0;  // the error of every command buffer, or 0
  size_t resident = 0, requested = 0, fence_waits = 0;
  size_t compiled = 0, compiling = 0, most_compiling = 0;
  size_t wired_since = 1, debug_groups = 0;
  double compile_seconds = 0;
  bool listed = true, capturing = false;
  bool removed = false, safe_math = false;
  int family = kFamily, macos = INT_MAX;
  double delay = 0, timeout = kTimeout;
  std::string os_version = kOsVersion;
  std::function<void()> in_pipeline;
};

State& state() {
  static State* const all = new State;
  return *all;
}

// "MTLBuffer" for MOCBuffer, the class behind the protocol; empty for classes of no interest to a host of Metal.
std::string public_name(const std::string& class_name) {
  if (class_name.starts_with("MTL")) return class_name;
  if (class_name == "MOCString") return "NSString";
  return class_name.starts_with("MOC") ? "MTL" + class_name.substr(3) : class_name;
}

// Threads may still hold what a program that waited for a command buffer has let go of.
std::vector<LiveCount> live() {
  SerialThread::wait_until_idle(kIdleSeconds);
  std::vector<LiveCount> all = live_objects();
  for (LiveCount& entry : all) entry.class_name = public_name(entry.class_name);
  return all;
}

std::string report() {
  std::string all;
  {
    const std::lock_guard<std::mutex> lock(state().mutex);
    for (const Finding& finding : state().findings) {
      all += finding.text + (finding.repeats == 1 ? "" : " (" + std::to_string(finding.repeats) + " times)") + "\n";
    }
  }
  for (const LiveCount& entry : live()) all += "alive: " + std::to_string(entry.count) + " " + entry.class_name + "\n";
  return all;
}

size_t copy_out(const std::string& all, char* text, size_t capacity) {
  if (text != nullptr && capacity != 0) {
    const size_t size = std::min(all.size(), capacity - 1);
    std::memcpy(text, all.data(), size);
    text[size] = '\0';
  }
  return all.size() + 1;
}

template <class Change>
void change(Change&& change) {
  const std::lock_guard<std::mutex> lock(state().mutex);
  change(state());
}

template <class Read>
auto read(Read&& read) {
  const std::lock_guard<std::mutex> lock(state().mutex);
  return read(state());
}

}  // namespace

void find(const std::string& kind, const std::string& message) {
  change([&](State& s) {
    const std::string text = kind + ": " + message;
    for (Finding& finding : s.findings) {
      if (finding.text == text) {
        ++finding.repeats;
        return;
      }
    }
    s.findings.push_back({kind, text});
  });
}

bool fails(Fault kind) {
  return read([&](State& s) {
    const auto entry = s.countdown.find(kind);
    const bool now = entry != s.countdown.end() && entry->second != 0 && --entry->second == 0;
    return now || s.removed;
  });
}

void call_in_pipeline() {
  std::function<void()> call;
  change([&](State& s) { call = std::exchange(s.in_pipeline, nullptr); });
  if (call) call();
}

std::optional<CommandBufferFault> command_buffer_fault() {
  return read([](State& s) -> std::optional<CommandBufferFault> {
    if (s.removed) return CommandBufferFault{kDeviceRemoved, false};
    if (s.refusal != 0) return CommandBufferFault{s.refusal, false};
    if (s.command_buffer_countdown == 0 || --s.command_buffer_countdown != 0) return std::nullopt;
    return s.command_buffer;
  });
}

bool device_removed() {
  return read([](State& s) { return s.removed; });
}
int apple_family() {
  return read([](State& s) { return s.family; });
}
bool safe_math_required() {
  return read([](State& s) { return s.safe_math; });
}
void note_resident(size_t allocations, size_t requested) {
  change([&](State& s) { s.resident = allocations, s.requested = requested; });
}
void note_fence_wait() {
  change([](State& s) { ++s.fence_waits; });
}
size_t wired_since() {
  return read([](State& s) { return s.wired_since; });
}
bool devices_listed() {
  return read([](State& s) { return s.listed; });
}
bool capturing() {
  return read([](State& s) { return s.capturing; });
}
void note_debug_group() {
  change([](State& s) { ++s.debug_groups; });
}
void note_compiled() {
  change([](State& s) { ++s.compiled; });
}
Compiling::Compiling() {
  const double seconds = read([](State& s) {
    s.most_compiling = std::max(s.most_compiling, ++s.compiling);
    return s.compile_seconds;
  });
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}
Compiling::~Compiling() {
  change([](State& s) { --s.compiling; });
}
std::string os_version() {
  return read([](State& s) { return s.os_version; });
}
std::chrono::duration<double> completion_delay() {
  return std::chrono::duration<double>(read([](State& s) { return s.delay; }));
}
std::chrono::duration<double> wait_timeout() {
  return std::chrono::duration<double>(read([](State& s) { return s.timeout; }));
}

}  // namespace metal_framework

using metal_framework::change;
using metal_framework::Fault;
using metal_framework::read;
using metal_framework::State;

size_t metal_test_finding_count(void) {
  return read([](State& s) { return s.findings.size(); });
}
size_t metal_test_findings_of(const char* kind) {
  return read([&](State& s) {
    return static_cast<size_t>(
        std::count_if(s.findings.begin(), s.findings.end(), [&](const auto& finding) { return finding.kind == kind; }));
  });
}

long metal_test_live_objects(const char* class_name) {
  long sum = 0;
  for (const auto& entry : metal_framework::live()) {
    if (class_name == nullptr ? entry.class_name.starts_with("MTL") : entry.class_name == class_name) sum += entry.count;
  }
  return sum;
}

size_t metal_test_check_leaks(void) {
  size_t classes = 0;
  for (const auto& entry : metal_framework::live()) {
    if (!entry.class_name.starts_with("MTL")) continue;
    metal_framework::find("leak", std::to_string(entry.count) + " " + entry.class_name + " still alive");
    ++classes;
  }
  return classes;
}

size_t metal_test_report(char* text, size_t capacity) {
  return metal_framework::copy_out(metal_framework::report(), text, capacity);
}

void metal_test_reset(void) {
  metal_framework::forget_later();
  change([](State& s) {
    s.findings.clear();
    s.countdown.clear();
    s.in_pipeline = nullptr;
    s.command_buffer_countdown = 0;
    s.removed = false;
    s.refusal = 0;
    s.resident = s.requested = s.fence_waits = 0;
    s.compiled = s.most_compiling = s.debug_groups = 0;
    s.compile_seconds = 0;
    s.listed = true, s.capturing = false;
    s.safe_math = false;
    s.family = metal_framework::kFamily, s.macos = INT_MAX;
    s.os_version = metal_framework::kOsVersion;
    s.delay = 0;
    s.timeout = metal_framework::kTimeout;
  });
}

void metal_test_fail_allocation(size_t nth) {
  change([&](State& s) { s.countdown[Fault::kAllocation] = nth; });
}
void metal_test_fail_compile(size_t nth) {
  change([&](State& s) { s.countdown[Fault::kCompile] = nth; });
}
void metal_test_fail_pipeline(size_t nth) {
  change([&](State& s) { s.countdown[Fault::kPipeline] = nth; });
}
void metal_test_call_in_pipeline(void (*call)(void* user), void* user) {
  change([&](State& s) { s.in_pipeline = [=] { call(user); }; });
}
void metal_test_fail_queue(size_t nth) {
  change([&](State& s) { s.countdown[Fault::kQueue] = nth; });
}
void metal_test_fail_command_buffer_creation(size_t nth) {
  change([&](State& s) { s.countdown[Fault::kCommands] = nth; });
}
void metal_test_fail_encoder(size_t nth) {
  change([&](State& s) { s.countdown[Fault::kEncoder] = nth; });
}
void metal_test_fail_event(size_t nth) {
  change([&](State& s) { s.countdown[Fault::kEvent] = nth; });
}
void metal_test_fail_residency_set(size_t nth) {
  change([&](State& s) { s.countdown[Fault::kResidencySet] = nth; });
}
void metal_test_fail_archive(size_t nth) {
  change([&](State& s) { s.countdown[Fault::kArchive] = nth; });
}
void metal_test_apple_family(int newest) {
  change([&](State& s) { s.family = newest; });
}
void metal_test_system(int macos) {
  change([&](State& s) { s.macos = macos; });
}
bool metal_framework_has(const char* platforms) {
  const char* const macos = std::strstr(platforms, "macOS ");
  return macos != nullptr && std::atoi(macos + 6) <= read([](State& s) { return s.macos; });
}
void metal_test_os_version(const char* text) {
  change([&](State& s) { s.os_version = text; });
}
void metal_test_require_safe_math(bool on) {
  change([&](State& s) { s.safe_math = on; });
}
void metal_test_fail_command_buffer(size_t nth, long code, bool late) {
  change([&](State& s) {
    s.command_buffer_countdown = nth;
    s.command_buffer = {code, late};
  });
}
void metal_test_refuse_command_buffers(long code) {
  change([&](State& s) { s.refusal = code; });
}
void metal_test_unwire(void) {
  change([](State& s) { ++s.wired_since; });
}
size_t metal_test_compiled(void) {
  return read([](State& s) { return s.compiled; });
}
size_t metal_test_most_compiling(void) {
  return read([](State& s) { return s.most_compiling; });
}
void metal_test_slow_compile(double seconds) {
  change([&](State& s) { s.compile_seconds = seconds; });
}
void metal_test_list_no_devices(void) {
  change([](State& s) { s.listed = false; });
}
size_t metal_test_debug_groups(void) {
  return read([](State& s) { return s.debug_groups; });
}
void metal_test_capture(bool on) {
  change([&](State& s) { s.capturing = on; });
}
size_t metal_test_fence_waits(void) {
  return read([](State& s) { return s.fence_waits; });
}
size_t metal_test_resident_allocations(void) {
  return read([](State& s) { return s.resident; });
}
size_t metal_test_requested_allocations(void) {
  return read([](State& s) { return s.requested; });
}
void metal_test_remove_device(void) {
  change([](State& s) { s.removed = true; });
}
void metal_test_slow_completion(double seconds) {
  change([&](State& s) { s.delay = seconds; });
}
void metal_test_wait_timeout(double seconds) {
  change([&](State& s) { s.timeout = seconds; });
}
size_t metal_test_make_library(const char* source, char* data, size_t capacity) {
  const std::string all = metal_framework::wrap_source(source);
  if (data != nullptr) std::memcpy(data, all.data(), std::min(all.size(), capacity));
  return all.size();
}
