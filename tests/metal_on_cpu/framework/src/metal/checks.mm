#include "metal/checks.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "dispatch/serial_thread.h"
#include "metal/source_library.h"
#include "runtime/object.h"

namespace metal_framework {
namespace {

struct Finding {
  std::string kind, text;
  size_t repeats = 1;
};

constexpr double kIdleSeconds = 1;
// MTLCommandBufferErrorDeviceRemoved, without the headers of Objective-C objects here
constexpr long kDeviceRemoved = 11;

// They outlive every thread.
template <class T>
T& lasting() {
  static T* const all = new T;
  return *all;
}
std::recursive_mutex& mutex() { return lasting<std::recursive_mutex>(); }
using Guard = std::lock_guard<std::recursive_mutex>;
std::deque<Finding>& findings() { return lasting<std::deque<Finding>>(); }

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
    const Guard lock(mutex());
    for (const Finding& finding : findings()) {
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

}  // namespace

void find(const std::string& kind, const std::string& message) {
  const Guard lock(mutex());
  const std::string text = kind + ": " + message;
  for (Finding& finding : findings()) {
    if (finding.text == text) {
      ++finding.repeats;
      return;
    }
  }
  findings().push_back({kind, text});
}

bool fails(Fault kind) {
  const metal_test::Locked s;
  const auto entry = s->fail.find(kind);
  const bool now = entry != s->fail.end() && entry->second != 0 && --entry->second == 0;
  return now || s->removed;
}

void call_in_pipeline() {
  if (const auto call = std::exchange(metal_test::settings()->in_pipeline, nullptr)) call();
}

std::optional<CommandBufferFault> command_buffer_fault() {
  const metal_test::Locked s;
  if (s->removed) return CommandBufferFault{kDeviceRemoved, false};
  if (s->refusal != 0) return CommandBufferFault{s->refusal, false};
  if (s->command_buffer.nth == 0 || --s->command_buffer.nth != 0) return std::nullopt;
  return CommandBufferFault{s->command_buffer.code, s->command_buffer.late};
}

Compiling::Compiling() {
  double seconds = 0;
  {
    const metal_test::Locked s;
    s->most_compiling = std::max(s->most_compiling, ++s->compiling);
    seconds = s->compile_seconds;
  }
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

}  // namespace metal_framework

metal_test::Locked::Locked() : lock_(metal_framework::mutex()), settings_(&metal_framework::lasting<Settings>()) {}

size_t metal_test_finding_count(void) {
  const metal_framework::Guard lock(metal_framework::mutex());
  return metal_framework::findings().size();
}
size_t metal_test_findings_of(const char* kind) {
  const metal_framework::Guard lock(metal_framework::mutex());
  const auto& all = metal_framework::findings();
  return static_cast<size_t>(std::count_if(all.begin(), all.end(), [&](const auto& finding) { return finding.kind == kind; }));
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
  const metal_test::Locked s;
  metal_framework::findings().clear();
  metal_test::Settings fresh;
  fresh.wired_since = s->wired_since;
  fresh.compiling = s->compiling;
  *s.operator->() = fresh;
}

bool metal_framework_has(const char* platforms) {
  const char* const macos = std::strstr(platforms, "macOS ");
  return macos != nullptr && std::atoi(macos + 6) <= metal_test::settings()->macos;
}

size_t metal_test_make_library(const char* source, char* data, size_t capacity) {
  const std::string all = metal_framework::wrap_source(source);
  if (data != nullptr) std::memcpy(data, all.data(), std::min(all.size(), capacity));
  return all.size();
}
