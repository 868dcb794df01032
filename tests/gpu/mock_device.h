// A GoogleMock device in front of another one: it passes every call on, and any of them can be told to fail.
#pragma once

#include "idle_device.h"
#include "test.h"

namespace device_test {

/// How a call fails.
enum class Fault : uint8_t {
  error,    ///< MARLIN_E_DEVICE, this once
  memory,   ///< MARLIN_E_MEMORY, this once
  lost,     ///< MARLIN_E_DEVICE, from now on always
  late,     ///< it succeeds; the stream's next wait() and failure() do not, from now on
  timeout,  ///< MARLIN_E_TIMEOUT, this once
};
inline constexpr const char* kFaultNames[] = {"error", "memory", "lost", "late", "timeout"};
inline void PrintTo(Fault fault, std::ostream* out) { *out << kFaultNames[static_cast<int>(fault)]; }

/// Makes the n-th call fail.
struct FaultPlan {
  Fault fault = Fault::error;
  int at = 0;  ///< 1: the first call; 0: none
  int calls = 0;
  bool struck = false, lost = false;
  std::string where;  ///< the call that failed

  void arm(Fault with, int n) { *this = {with, n, 0, false, false, {}}; }
  void disarm() { arm(Fault::error, 0); }

  /// What the next call, named `call`, returns before anything is done; `late` is the stream's own state, if it has one.
  Status next(const char* call, bool* late = nullptr) {
    if (lost) return failed();
    if (++calls != at) return {};
    where = call;
    if (fault == Fault::late && late == nullptr) return {};
    if (fault == Fault::timeout && where != "wait") return {};
    struck = true;
    lost = fault == Fault::lost;
    if (fault == Fault::late) {
      *late = true;
      return {};
    }
    if (fault == Fault::memory) return Status::error(MARLIN_E_MEMORY, "mock: out of memory in %s", call);
    if (fault == Fault::timeout) return Status::error(MARLIN_E_TIMEOUT, "mock: %s timed out", call);
    return failed();
  }
  Status failed() const { return Status::error(MARLIN_E_DEVICE, "mock: device failed in %s", where.c_str()).with_native(77); }
};

class FaultyStream final : public dv::Stream {
 public:
  FaultyStream(std::unique_ptr<dv::Stream> inner, FaultPlan& faults) : inner_(std::move(inner)), faults_(faults) {}
  Status dispatch(const dv::Dispatch& d) override {
    return pass("dispatch", [&] { return inner_->dispatch(d); });
  }
  Status copy(const dv::BufferRef& f, uint64_t fo, const dv::BufferRef& t, uint64_t to, uint64_t n) override {
    return pass("copy", [&] { return inner_->copy(f, fo, t, to, n); });
  }
  Status fill(const dv::BufferRef& t, uint64_t o, uint64_t n, uint8_t v) override {
    return pass("fill", [&] { return inner_->fill(t, o, n, v); });
  }
  Status barrier() override {
    return pass("barrier", [&] { return inner_->barrier(); });
  }
  Status commit() override {
    return pass("commit", [&] { return inner_->commit(); });
  }
  Status wait(uint64_t ns) override {
    if (late_) return late_error();
    return pass("wait", [&] {
      const Status s = inner_->wait(ns);
      return late_ ? late_error() : s;
    });
  }
  Status notify(void (*done)(void*, marlin_status), void* user) override {
    return pass("notify", [&] { return inner_->notify(done, user); });
  }
  Status failure() const override { return late_ ? late_error() : inner_->failure(); }
  double busy_seconds() const override { return inner_->busy_seconds(); }

 private:
  template <class To>
  Status pass(const char* call, const To& to) {
    const Status s = faults_.next(call, &late_);
    return s.ok() ? to() : s;
  }
  static Status late_error() { return Status::error(MARLIN_E_DEVICE, "mock: late error").with_native(78); }
  const std::unique_ptr<dv::Stream> inner_;
  FaultPlan& faults_;
  bool late_ = false;
};

class MockDevice : public dv::Device {
 public:
  MockDevice(std::shared_ptr<dv::Device> inner, FaultPlan& faults) : inner_(std::move(inner)), faults_(faults) {
    using testing::_;
    ON_CALL(*this, allocate(_, _, _)).WillByDefault([this](uint64_t n, dv::Placement p, const char* label) {
      return pass<dv::BufferRef>("allocate", [&] { return inner_->allocate(n, p, label); });
    });
    ON_CALL(*this, wrap(_, _, _)).WillByDefault([this](void* p, uint64_t n, dv::Placement placement) {
      return pass<dv::BufferRef>("wrap", [&] { return inner_->wrap(p, n, placement); });
    });
    ON_CALL(*this, wrap_native(_)).WillByDefault([this](void* p) {
      return pass<dv::BufferRef>("wrap_native", [&] { return inner_->wrap_native(p); });
    });
    ON_CALL(*this, kernel(_, _)).WillByDefault([this](std::string_view name, std::span<const dv::Constant> constants) {
      return pass<dv::KernelRef>("kernel", [&] { return inner_->kernel(name, constants); });
    });
    ON_CALL(*this, stream(_)).WillByDefault([this](const dv::StreamSource& source) {
      return pass<std::unique_ptr<dv::Stream>>("stream", [&]() -> Result<std::unique_ptr<dv::Stream>> {
        MARLIN_ASSIGN(auto made, inner_->stream(source));
        return std::unique_ptr<dv::Stream>(std::make_unique<FaultyStream>(std::move(made), faults_));
      });
    });
  }
  const dv::Capabilities& capabilities() const override { return inner_->capabilities(); }
  MOCK_METHOD(Result<dv::BufferRef>, allocate, (uint64_t, dv::Placement, const char*), (override));
  MOCK_METHOD(Result<dv::BufferRef>, wrap, (void*, uint64_t, dv::Placement), (override));
  MOCK_METHOD(Result<dv::BufferRef>, wrap_native, (void*), (override));
  MOCK_METHOD(Result<dv::KernelRef>, kernel, (std::string_view, std::span<const dv::Constant>), (override));
  MOCK_METHOD(Result<std::unique_ptr<dv::Stream>>, stream, (const dv::StreamSource&), (override));

 private:
  template <class T, class To>
  Result<T> pass(const char* call, const To& to) {
    if (const Status s = faults_.next(call); !s.ok()) return s;
    return to();
  }
  const std::shared_ptr<dv::Device> inner_;
  FaultPlan& faults_;
};

}  // namespace device_test
