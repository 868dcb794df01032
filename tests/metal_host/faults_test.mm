// Every fault that can be planted is a typed error or costs nothing but time, and leaves nothing behind.
#include <fstream>
#include <iterator>
#include <regex>

#include "backends/metal/errors.h"
#include "backends/metal/objects.h"
#include "fixture.h"

namespace metal_marlin::metal {
namespace {

using ::testing::HasSubstr;

class Faults : public DeviceTest {
 protected:
  /// Opens the device, whose memory for kernels alone works.
  void expect_fills() {
    open();
    auto on = stream();
    BufferRef y = buffer(64, Placement::device);
    EXPECT_OK(on->fill(y, 0, 64, 1));
    EXPECT_OK(finish(*on));
    EXPECT_EQ(y->host()[63], std::byte{1});
  }
};

TEST_F(Faults, MemoryRunsOut) {
  open();
  metal_test::settings()->fail[metal_test::Fault::allocation] = 1;
  EXPECT_CODE(device->allocate(64, Placement::device, "weights").status(), MARLIN_E_MEMORY);
  EXPECT_NE(buffer(), nullptr);
  alignas(65536) static std::byte pages[65536];
  metal_test::settings()->fail[metal_test::Fault::allocation] = 1;
  EXPECT_CODE(device->wrap(pages, sizeof pages, Placement::shared).status(), MARLIN_E_MEMORY);
}

TEST_F(Faults, CompilersFail) {
  open();
  metal_test::settings()->fail[metal_test::Fault::compile] = 1;
  const Status status = device->kernel("scale", kPlain).status();
  EXPECT_EQ(status.code(), MARLIN_E_DEVICE);
  EXPECT_EQ(status.native_code(), static_cast<int32_t>(MTLLibraryErrorInternal));
  EXPECT_NE(kernel("scale"), nullptr) << "a failure is not remembered";
}

TEST_F(Faults, QueuesCommandBuffersAndEncodersFail) {
  open();
  metal_test::settings()->fail[metal_test::Fault::queue] = 1;
  EXPECT_CODE(device->stream({}).status(), MARLIN_E_MEMORY);
  auto on = stream();
  BufferRef y = buffer(64);
  KernelRef narrow = kernel("narrow");
  const Argument arguments[] = {{0, y, 0, {}}};
  const device::Dispatch once{narrow, arguments, {}, {1, 1, 1}, {}};
  metal_test::settings()->fail[metal_test::Fault::commands] = 1;
  EXPECT_CODE(on->dispatch(once), MARLIN_E_MEMORY);
  metal_test::settings()->fail[metal_test::Fault::encoder] = 1;
  EXPECT_CODE(on->dispatch(once), MARLIN_E_MEMORY);
  metal_test::settings()->fail[metal_test::Fault::encoder] = 1;
  EXPECT_CODE(on->fill(y, 0, 4, 0), MARLIN_E_MEMORY);
  EXPECT_OK(on->dispatch(once));
  EXPECT_OK(finish(*on));
}

TEST_F(Faults, HelpersFailWithTheirCompiler) {
  open();
  auto on = stream();
  BufferRef y = buffer(64);
  metal_test::settings()->fail[metal_test::Fault::compile] = 1;
  EXPECT_CODE(on->fill(y, 1, 1, 0), MARLIN_E_DEVICE);
  EXPECT_OK(on->fill(y, 1, 1, 0));
  EXPECT_OK(finish(*on));
}

class LateErrors : public DeviceTest, public ::testing::WithParamInterface<MTLCommandBufferError> {};

TEST_P(LateErrors, AreTypedAndStay) {
  open();
  for (const bool late : {false, true}) {
    auto on = stream();
    BufferRef y = buffer(64);
    metal_test::settings()->command_buffer = {1, static_cast<long>(GetParam()), late};
    EXPECT_OK(on->fill(y, 0, 4, 1));
    EXPECT_OK(on->commit());
    const Status status = on->wait(UINT64_MAX);
    EXPECT_EQ(status.code(), GetParam() == MTLCommandBufferErrorOutOfMemory ? MARLIN_E_MEMORY : MARLIN_E_DEVICE);
    EXPECT_EQ(status.native_code(), static_cast<int32_t>(GetParam()));
    EXPECT_THAT(status.message(), HasSubstr("MTLCommandBufferErrorDomain"));
    EXPECT_OK(on->fill(y, 0, 4, 1));
    EXPECT_OK(on->commit());
    EXPECT_EQ(on->wait(UINT64_MAX).native_code(), status.native_code()) << "the first one stays";
    EXPECT_EQ(on->failure().native_code(), status.native_code());
    EXPECT_OK(stream()->wait(0)) << "other streams have not failed";
  }
}

INSTANTIATE_TEST_SUITE_P(Codes, LateErrors,
                         ::testing::Values(MTLCommandBufferErrorInternal, MTLCommandBufferErrorTimeout,
                                           MTLCommandBufferErrorPageFault, MTLCommandBufferErrorAccessRevoked,
                                           MTLCommandBufferErrorNotPermitted, MTLCommandBufferErrorOutOfMemory,
                                           MTLCommandBufferErrorInvalidResource, MTLCommandBufferErrorMemoryless,
                                           MTLCommandBufferErrorDeviceRemoved, MTLCommandBufferErrorStackOverflow));

/// The errors by which the system refuses any work say what the host can do.
TEST_F(Faults, RefusalsOfTheSystemSayWhatToDo) {
  open();
  const struct {
    MTLCommandBufferError code;
    const char* advice;
  } kCases[] = {{MTLCommandBufferErrorNotPermitted, "call again in the foreground"},
                {MTLCommandBufferErrorAccessRevoked, "restart it, or use the CPU"},
                {MTLCommandBufferErrorDeviceRemoved, "make a context on another one"},
                {MTLCommandBufferErrorOutOfMemory, "free memory, and call again"},
                {MTLCommandBufferErrorPageFault, "Address Fault Error"}};
  BufferRef y = buffer(64);
  for (const auto& each : kCases) {
    metal_test::settings()->refusal = static_cast<long>(each.code);
    auto on = stream();
    EXPECT_OK(on->fill(y, 0, 4, 1));
    EXPECT_OK(on->commit());
    EXPECT_THAT(on->wait(UINT64_MAX).message(), ::testing::EndsWith(each.advice));
    metal_test::settings()->refusal = 0;
    auto other = stream();
    EXPECT_OK(other->fill(y, 0, 4, 1));
    EXPECT_OK(finish(*other)) << "another stream works as soon as the system lets it";
  }
}

TEST_F(Faults, ErrorsOfTheHostsCommandBufferAreSeen) {
  open();
  @autoreleasepool {
    id<MTLCommandBuffer> commands = [[MTLCreateSystemDefaultDevice() newCommandQueue] commandBuffer];
    auto on = stream(MARLIN_NATIVE_METAL_COMMAND_BUFFER, (__bridge void*)commands);
    EXPECT_OK(on->fill(buffer(64), 0, 64, 3));
    EXPECT_OK(on->commit());
    metal_test::settings()->command_buffer = {1, MTLCommandBufferErrorPageFault, false};
    [commands commit];
    [commands waitUntilCompleted];
    EXPECT_EQ(on->failure().native_code(), static_cast<int32_t>(MTLCommandBufferErrorPageFault));
  }
}

TEST_F(Faults, TheDeviceGoesAway) {
  open();
  auto on = stream();
  BufferRef y = buffer(64);
  EXPECT_OK(on->fill(y, 0, 4, 1));
  metal_test::settings()->removed = true;
  EXPECT_OK(on->commit());
  EXPECT_EQ(on->wait(UINT64_MAX).native_code(), static_cast<int32_t>(MTLCommandBufferErrorDeviceRemoved));
  EXPECT_CODE(device->allocate(64, Placement::shared, nullptr).status(), MARLIN_E_MEMORY);
  EXPECT_CODE(device->stream({}).status(), MARLIN_E_MEMORY);
  EXPECT_CODE(device->kernel("scale", kPlain).status(), MARLIN_E_DEVICE);
  EXPECT_EQ(count_devices(), 0u);
  EXPECT_CODE(create_device(options()).status(), MARLIN_E_NO_DEVICE);
}

// Metal orders encoders by the memory that they use only where it tracks the memory.
TEST_F(Faults, MemoryIsTracked) {
  open();
  alignas(65536) static std::byte pages[65536];
  for (const BufferRef& each :
       {buffer(64, Placement::device), buffer(64), device->wrap(pages, sizeof pages, Placement::shared).take()})
    EXPECT_EQ(static_cast<const MetalBuffer&>(*each).buffer().hazardTrackingMode, MTLHazardTrackingModeTracked);
}

TEST_F(Faults, MemoryOfTheDeviceIsResidentWhileItLives) {
  open();
  auto on = stream();
  BufferRef y = buffer(64), first = buffer(64, Placement::device), second = buffer(64, Placement::device);
  const auto resident = [&] {
    EXPECT_OK(on->fill(y, 0, 64, 1));
    EXPECT_OK(finish(*on));
    EXPECT_EQ(metal_test::settings()->requested, metal_test::settings()->resident)
        << "the system makes memory resident when the command buffer runs, which then waits for it";
    return metal_test::settings()->resident;
  };
  EXPECT_EQ(resident(), 2u);
  second.reset();
  EXPECT_EQ(resident(), 1u);
  const BufferRef third = buffer(64, Placement::device);
  EXPECT_EQ(resident(), 2u);
}

TEST_F(Faults, MemoryStaysResidentThroughAPauseButNotForEver) {
  open();
  auto on = stream();
  BufferRef y = buffer(64, Placement::device);
  const auto requested = [&] {
    EXPECT_OK(on->fill(y, 0, 64, 1));
    EXPECT_OK(finish(*on));
    return metal_test::settings()->requested;
  };
  EXPECT_EQ(requested(), 1u);
  EXPECT_EQ(metal_test_later_blocks(), 1u);
  ++metal_test::settings()->wired_since;
  metal_test_pass_time(0.9);
  EXPECT_EQ(requested(), 1u) << "the system takes memory back after a second";
  metal_test_pass_time(200);
  EXPECT_EQ(metal_test_later_blocks(), 0u) << "others may have the memory of a program that does nothing";
  ++metal_test::settings()->wired_since;
  EXPECT_EQ(requested(), 1u) << "the first work after that asks for it again";
  on.reset(), y.reset(), device.reset();
  metal_test_pass_time(1);
  EXPECT_EQ(metal_test_later_blocks(), 0u);
}

// With API validation Metal ends the program there.
TEST_F(Faults, OlderFamiliesAreNotAskedForResidencySets) {
  metal_test::settings()->apple_family = 5;
  expect_fills();
}

TEST_F(Faults, ResidencyIsNoNeed) {
  metal_test::settings()->fail[metal_test::Fault::residency_set] = 1;
  expect_fills();
}

TEST_F(Faults, MayHaveNoReason) {
  EXPECT_CODE(to_status(nil, "it"), MARLIN_E_DEVICE);
  EXPECT_STREQ(to_status(nil, "it").message(), "it: failed without saying why");
}

// --- the cache of compiled pipelines ----------------------------------------------------------------------------------------

class Cache : public DeviceTest {
 protected:
  DeviceOptions cached() {
    DeviceOptions made = options();
    made.cache_folder = cache + "/below";
    made.logger = {[](void* user, int32_t, const char* message) { static_cast<Cache*>(user)->log += message; }, this};
    return made;
  }
  // Of a process that makes this kernel.
  void make(std::string_view name, const DeviceOptions& with) {
    open(with);
    EXPECT_NE(kernel(name), nullptr);
    device.reset();
  }
  std::vector<std::filesystem::path> files() const {
    std::vector<std::filesystem::path> all;
    if (!std::filesystem::exists(cache)) return all;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(cache))
      if (entry.is_regular_file()) all.push_back(entry.path());
    return all;
  }
  static std::string contents(const std::filesystem::path& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  std::string log;
};

TEST_F(Cache, IsWrittenOnceAndReadAgain) {
  make("scale", cached());
  ASSERT_EQ(files().size(), 1u) << "no unfinished file is left";
  const std::string version = std::to_string(MARLIN_VERSION_MAJOR) + "." + std::to_string(MARLIN_VERSION_MINOR);
  EXPECT_THAT(files()[0].filename().string(), ::testing::StartsWith("pipelines-" + version + "-"));
  const auto written = std::filesystem::last_write_time(files()[0]);
  const std::string before = contents(files()[0]);
  make("scale", cached());
  EXPECT_EQ(std::filesystem::last_write_time(files()[0]), written) << "nothing was new";
  make("narrow", cached());
  EXPECT_GT(contents(files()[0]).size(), before.size()) << "what was there stays";
  EXPECT_EQ(log, "");
}

TEST_F(Cache, IsOfItsShadersOnly) {
  make("scale", cached());
  const std::string other = std::string(kShader) + "\n";
  const ShaderFile others[] = {{kShaders[0].kernels, other}};
  DeviceOptions with = cached();
  with.shaders = others;
  make("scale", with);
  EXPECT_EQ(files().size(), 2u);
}

// Another system has another compiler.
TEST_F(Cache, IsOfItsSystemOnly) {
  make("scale", cached());
  metal_test::settings()->os_version = "Version 15.1 (simulated)";
  make("scale", cached());
  EXPECT_EQ(files().size(), 2u);
}

// A home folder may move to another Mac.
TEST_F(Cache, IsOfItsGpuOnly) {
  make("scale", cached());
  metal_test::settings()->apple_family = 8;
  make("scale", cached());
  EXPECT_EQ(files().size(), 2u);
}

TEST_F(Cache, MayBeDamagedOrDeleted) {
  make("scale", cached());
  const std::string whole = contents(files()[0]);
  for (const size_t length : {size_t{0}, size_t{1}, whole.size() / 2}) {
    std::ofstream(files()[0], std::ios::binary) << whole.substr(0, length);
    log.clear();
    make("scale", cached());
    EXPECT_THAT(log, HasSubstr("MTLBinaryArchiveDomain 1")) << length;
    EXPECT_EQ(contents(files()[0]), whole) << "written anew";
  }
  open(cached());
  std::filesystem::remove_all(cache);
  EXPECT_NE(kernel("narrow"), nullptr);
  device.reset();
  EXPECT_EQ(files().size(), 1u);
}

TEST_F(Cache, MayHaveAFolderInItsPlace) {
  make("scale", cached());
  const auto place = files()[0];
  std::filesystem::remove(place);
  std::filesystem::create_directory(place);
  make("scale", cached());
  EXPECT_EQ(files().size(), 0u) << "nothing is left of the attempt";
}

TEST_F(Cache, CannotBeMadeAddedToOrWritten) {
  metal_test::settings()->fail[metal_test::Fault::archive] = 1;
  make("scale", cached());
  EXPECT_EQ(files().size(), 0u);
  metal_test::settings()->fail[metal_test::Fault::archive] = 2;
  make("scale", cached());
  EXPECT_EQ(files().size(), 0u);
  metal_test::settings()->fail[metal_test::Fault::archive] = 3;
  make("scale", cached());
  EXPECT_EQ(files().size(), 0u);
  EXPECT_THAT(log, HasSubstr("planted"));
  DeviceOptions nowhere = cached();
  nowhere.cache_folder = "/dev/null/below";
  make("scale", nowhere);
  EXPECT_THAT(log, HasSubstr("the folder cannot be made"));
}

TEST_F(Cache, IsSavedWhileAProcessGoesOn) {
  open(cached());
  for (uint32_t i = 0; i < 16; ++i) {
    const std::vector<Constant> constants = {
        {0, Constant::Type::boolean, 0}, {1, Constant::Type::uint32, i}, {2, Constant::Type::uint32, 1}};
    EXPECT_EQ(files().size(), 0u);
    EXPECT_NE(kernel("scale", constants), nullptr);
  }
  EXPECT_EQ(files().size(), 1u);
}

}  // namespace
}  // namespace metal_marlin::metal
