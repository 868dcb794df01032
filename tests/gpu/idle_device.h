// A device that has memory and computes nothing: it writes down what it is told.
#pragma once

#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "device/device.h"

namespace device_test {

namespace dv = metal_marlin::device;
using metal_marlin::Result;
using metal_marlin::Status;

/// One argument of a dispatch as it was recorded.
struct Bound {
  const dv::Buffer* buffer = nullptr;
  uint64_t offset = 0;
  std::vector<std::byte> value;
};

struct Command {
  std::string what;  ///< "dispatch", "copy", "fill", "barrier", "commit", "wait"
  std::string kernel;
  std::map<uint32_t, uint32_t> constants;
  dv::Size3 groups, threads;
  std::map<uint32_t, Bound> arguments;
  metal_marlin::TracedStep step{};
};

/// What happened on a device, and what is alive. Outlives everything made from it.
struct Record {
  std::mutex mutex;
  std::vector<Command> commands;
  int allocations = 0, compilations = 0;
  int buffers = 0, streams = 0;  ///< alive
  void count(int& counter, int by) {
    const std::lock_guard lock(mutex);
    counter += by;
  }
  void add(Command command) {
    const std::lock_guard lock(mutex);
    commands.push_back(std::move(command));
  }
  std::vector<Command> take() {
    const std::lock_guard lock(mutex);
    return std::exchange(commands, {});
  }
};

class HostBuffer final : public dv::Buffer {
 public:
  /// Of its own, when `wrapped` is null.
  HostBuffer(Record& record, std::byte* wrapped, uint64_t bytes) : record_(record), bytes_(bytes), wrapped_(wrapped) {
    if (wrapped == nullptr) {
      const size_t whole = (bytes + 255) / 256 * 256;
      own_.reset(static_cast<std::byte*>(std::aligned_alloc(256, whole)));
      std::memset(own_.get(), 0, whole);
    }
    record_.count(record_.buffers, 1);
  }
  ~HostBuffer() override { record_.count(record_.buffers, -1); }
  uint64_t bytes() const override { return bytes_; }
  std::byte* host() const override { return visible ? data() : nullptr; }
  uint64_t address() const override { return reinterpret_cast<uintptr_t>(data()); }
  std::byte* data() const { return wrapped_ != nullptr ? wrapped_ : own_.get(); }

  bool visible = true;  ///< to the host

 private:
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  Record& record_;
  const uint64_t bytes_;
  std::byte* const wrapped_;
  std::unique_ptr<std::byte, Free> own_;
};

class IdleKernel final : public dv::Kernel {
 public:
  IdleKernel(std::string_view called, std::span<const dv::Constant> with) : name(called) {
    for (const dv::Constant& c : with) constants[c.index] = c.bits;
  }
  uint32_t max_threads() const override { return threads; }
  uint32_t simd_width() const override { return 32; }
  uint32_t threadgroup_bytes() const override { return 0; }

  const std::string name;
  std::map<uint32_t, uint32_t> constants;
  uint32_t threads = 1024;
};

class IdleStream final : public dv::Stream {
 public:
  explicit IdleStream(Record& record) : record_(record) { record_.count(record_.streams, 1); }
  ~IdleStream() override { record_.count(record_.streams, -1); }

  Status dispatch(const dv::Dispatch& d) override {
    const auto& kernel = static_cast<const IdleKernel&>(*d.kernel);
    Command command{"dispatch", kernel.name, kernel.constants, d.groups, d.threads, {}};
    for (const dv::Argument& a : d.arguments) {
      command.arguments[a.index] = {a.buffer.get(), a.offset, {a.value.begin(), a.value.end()}};
      if (a.buffer != nullptr) kept_.push_back(a.buffer);
    }
    command.step = d.what;
    record_.add(std::move(command));
    return {};
  }
  Status copy(const dv::BufferRef& from, uint64_t from_offset, const dv::BufferRef& to, uint64_t to_offset,
              uint64_t bytes) override {
    std::copy_n(static_cast<const HostBuffer&>(*from).data() + from_offset, bytes,
                static_cast<const HostBuffer&>(*to).data() + to_offset);
    return note("copy");
  }
  Status fill(const dv::BufferRef&, uint64_t, uint64_t, uint8_t) override { return note("fill"); }
  Status barrier() override { return note("barrier"); }
  Status commit() override { return note("commit"); }
  Status wait(uint64_t) override {
    kept_.clear();
    return note("wait");
  }
  Status notify(void (*done)(void*, marlin_status), void* user) override {
    done(user, MARLIN_OK);
    return note("notify");
  }
  Status failure() const override { return {}; }
  double busy_seconds() const override { return 0; }

 private:
  Status note(const char* what) {
    record_.add({what, {}, {}, {}, {}, {}});
    return {};
  }
  Record& record_;
  std::vector<dv::BufferRef> kept_;
};

class IdleDevice : public dv::Device {
 public:
  explicit IdleDevice(Record& record) : record_(record) {
    capabilities_.name = "Idle";
    capabilities_.architecture = "idle1";
    capabilities_.matrix = capabilities_.bfloat = true;
    capabilities_.page_bytes = 4096;
  }
  const dv::Capabilities& capabilities() const override { return capabilities_; }
  dv::Capabilities& change() { return capabilities_; }

  Result<dv::BufferRef> allocate(uint64_t bytes, dv::Placement placement, const char*) override {
    record_.count(record_.allocations, 1);
    auto buffer = std::make_shared<HostBuffer>(record_, nullptr, bytes);
    buffer->visible = capabilities_.unified_memory || placement == dv::Placement::shared;
    return dv::BufferRef(std::move(buffer));
  }
  Result<dv::BufferRef> wrap(void* host, uint64_t bytes, dv::Placement) override {
    return dv::BufferRef(std::make_shared<HostBuffer>(record_, static_cast<std::byte*>(host), bytes));
  }
  /// A native object is a HostBuffer of the test's own.
  Result<dv::BufferRef> wrap_native(void* native) override {
    const auto* buffer = static_cast<const HostBuffer*>(native);
    if (buffer == nullptr) return Status::error(MARLIN_E_ARGUMENT, "no object of this device");
    return dv::BufferRef(std::make_shared<HostBuffer>(record_, buffer->data(), buffer->bytes()));
  }
  Result<dv::KernelRef> kernel(std::string_view name, std::span<const dv::Constant> constants) override {
    record_.count(record_.compilations, 1);
    return dv::KernelRef(std::make_shared<IdleKernel>(name, constants));
  }
  Result<std::unique_ptr<dv::Stream>> stream(const dv::StreamSource&) override {
    return std::unique_ptr<dv::Stream>(std::make_unique<IdleStream>(record_));
  }

 private:
  Record& record_;
  dv::Capabilities capabilities_;
};

}  // namespace device_test
