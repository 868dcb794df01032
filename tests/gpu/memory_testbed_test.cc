// The GPU backend without memory, over the shader test-bed: what has failed must not change a bit of the next results.
// The short form lets each 32nd allocation fail.
// Whether all memory comes back shows over the idle device (memory_test.cc): the test-bed keeps memory of its own.
#include "memory_calls.h"
#include "testbed_device.h"

namespace gpu_memory_tests {
namespace {

/// While it lives, allocations get through and are not counted down: a real device does not allocate with the library's `new`.
class Unfailing {
 public:
  Unfailing() : rest_(failing_new::until_failure.exchange(-1)) {}
  ~Unfailing() { failing_new::until_failure = rest_; }
  Unfailing(const Unfailing&) = delete;
  Unfailing& operator=(const Unfailing&) = delete;

 private:
  const int64_t rest_;
};

class UnfailingStream final : public dv::Stream {
 public:
  explicit UnfailingStream(std::unique_ptr<dv::Stream> inner) : inner_(std::move(inner)) {}
  ~UnfailingStream() override {
    const Unfailing now;
    inner_.reset();
  }
  Status dispatch(const dv::Dispatch& d) override {
    return unfailing([&] { return inner_->dispatch(d); });
  }
  Status copy(const dv::BufferRef& from, uint64_t from_offset, const dv::BufferRef& to, uint64_t to_offset,
              uint64_t bytes) override {
    return unfailing([&] { return inner_->copy(from, from_offset, to, to_offset, bytes); });
  }
  Status fill(const dv::BufferRef& to, uint64_t offset, uint64_t bytes, uint8_t value) override {
    return unfailing([&] { return inner_->fill(to, offset, bytes, value); });
  }
  Status barrier() override {
    return unfailing([&] { return inner_->barrier(); });
  }
  Status commit() override {
    return unfailing([&] { return inner_->commit(); });
  }
  Status wait(uint64_t timeout) override {
    return unfailing([&] { return inner_->wait(timeout); });
  }
  Status notify(void (*done)(void*, marlin_status), void* user) override { return inner_->notify(done, user); }
  Status failure() const override { return inner_->failure(); }
  double busy_seconds() const override { return inner_->busy_seconds(); }

 private:
  template <typename Call>
  static Status unfailing(const Call& call) {
    const Unfailing now;
    return call();
  }
  std::unique_ptr<dv::Stream> inner_;
};

/// The test-bed, whose own allocations do not fail. It keeps the shaders that it has compiled.
class UnfailingDevice final : public dv::Device {
 public:
  explicit UnfailingDevice(TestbedOptions options) : inner_(std::move(options)) {}
  const dv::Capabilities& capabilities() const override { return inner_.capabilities(); }
  Result<dv::BufferRef> allocate(uint64_t bytes, dv::Placement placement, const char* label) override {
    const Unfailing now;
    return inner_.allocate(bytes, placement, label);
  }
  Result<dv::BufferRef> wrap(void* host, uint64_t bytes, dv::Placement placement) override {
    const Unfailing now;
    return inner_.wrap(host, bytes, placement);
  }
  Result<dv::BufferRef> wrap_native(void* native) override {
    const Unfailing now;
    return inner_.wrap_native(native);
  }
  Result<dv::KernelRef> kernel(std::string_view name, std::span<const dv::Constant> constants) override {
    const Unfailing now;
    return inner_.kernel(name, constants);
  }
  Result<std::unique_ptr<dv::Stream>> stream(const dv::StreamSource& source) override {
    const Unfailing now;
    MARLIN_ASSIGN(auto made, inner_.stream(source));
    return std::unique_ptr<dv::Stream>(std::make_unique<UnfailingStream>(std::move(made)));
  }

 private:
  TestbedDevice inner_;
};

class GpuMemoryOnTestbed : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Memory, GpuMemoryOnTestbed, testing::Bool(),
                         [](const auto& info) { return info.param ? "unified" : "discrete"; });

TEST_P(GpuMemoryOnTestbed, AFailureChangesNoBitOfWhatFollows) {
  Operands operands;
  TestbedOptions options;
  options.unified = GetParam();
  const auto device = std::make_shared<UnfailingDevice>(options);
  std::vector<float> expected;
  const auto attempt = [&](int64_t n) {
    const mm::context context(gpu_context(device, {.probe = false}));
    const marlin_status status = run_all(context, operands, n);
    if (status != MARLIN_OK) EXPECT_EQ(run_all(context, operands, -1), MARLIN_OK) << "after allocation " << n << " failed";
    if (expected.empty()) expected = operands.c;
    EXPECT_EQ(std::memcmp(operands.c.data(), expected.data(), expected.size() * sizeof(float)), 0) << "allocation " << n;
    std::fill(operands.c.begin(), operands.c.end(), -1.0f);
    return status;
  };
  ASSERT_EQ(attempt(-1), MARLIN_OK);  // compiles the shaders
  const bool whole = std::getenv("METAL_MARLIN_WHOLE") != nullptr;
  fail_allocations(attempt, whole ? 5 : 32, false);  // gpu_memory_test has each of them fail
}

}  // namespace
}  // namespace gpu_memory_tests
