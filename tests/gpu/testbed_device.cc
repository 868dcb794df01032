#include "testbed_device.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <random>
#include <sstream>
#include <utility>

#include "backends/metal/kernel_text.h"

namespace device_test {
namespace {

namespace bed = metal_on_cpu;

class TestbedBuffer final : public dv::Buffer {
 public:
  TestbedBuffer(std::byte* wrapped, uint64_t bytes) : bytes_(bytes), data_(wrapped) {
    if (wrapped != nullptr) return;
    own_.reset(static_cast<std::byte*>(std::aligned_alloc(256, (bytes + 255) / 256 * 256)));
    std::memset(own_.get(), 0xff, bytes);  // NaN to whoever reads what nobody wrote
    data_ = own_.get();
  }
  uint64_t bytes() const override { return bytes_; }
  std::byte* host() const override { return visible ? data_ : nullptr; }
  uint64_t address() const override { return reinterpret_cast<uintptr_t>(data_); }
  std::byte* data() const { return data_; }

  bool visible = true;  ///< to the host

 private:
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  const uint64_t bytes_;
  std::unique_ptr<std::byte, Free> own_;
  std::byte* data_;
};

std::byte* data_of(const dv::BufferRef& buffer) { return static_cast<const TestbedBuffer&>(*buffer).data(); }

/// Threadgroups along x that a product does not run.
uint32_t skipped_groups(const TestbedOptions& options, const std::string& kernel) {
  if (!kernel.starts_with("gemv_") && !kernel.starts_with("regdecode_")) return 0;
  const size_t columns = kernel.find("_n");
  return static_cast<uint32_t>(options.skipped_columns /
                               (columns == std::string::npos ? 32 : std::stol(kernel.substr(columns + 2))));
}

class TestbedKernel final : public dv::Kernel {
 public:
  TestbedKernel(std::string_view called, bed::Kernel compiled, uint32_t threads)
      : name(called), kernel(std::move(compiled)), max_threads_(threads) {}
  uint32_t max_threads() const override { return max_threads_; }
  uint32_t simd_width() const override { return 32; }
  uint32_t threadgroup_bytes() const override { return 0; }
  const std::string name;
  const bed::Kernel kernel;

 private:
  const uint32_t max_threads_;
};

/// Where an argument of a dispatch is.
struct ArgumentPlace {
  int index;
  std::byte* data;
  uint64_t bytes;
};

/// Memory of their own for the arguments of one dispatch: the bed counts by allocation, which codes and scales, or all scratch,
/// share otherwise.
class Apart {
 public:
  std::byte* copy(const ArgumentPlace& place) {
    const Copy& made = copies_.emplace_back(place, place.bytes);
    std::memcpy(made.now->data(), place.data, place.bytes);
    std::memcpy(made.before->data(), place.data, place.bytes);
    return made.now->data();
  }
  /// Brings back what the dispatch wrote. No kernel reads in one argument what it writes in another.
  void bring_back() const {
    for (const Copy& c : copies_)
      for (uint64_t i = 0; i < c.place.bytes; ++i)
        if (c.now->data()[i] != c.before->data()[i]) c.place.data[i] = c.now->data()[i];
  }

 private:
  struct Copy {
    Copy(const ArgumentPlace& from, uint64_t bytes)
        : place(from),
          before(std::make_unique<TestbedBuffer>(nullptr, bytes)),
          now(std::make_unique<TestbedBuffer>(nullptr, bytes)) {}
    ArgumentPlace place;
    std::unique_ptr<TestbedBuffer> before, now;
  };
  std::vector<Copy> copies_;
};

class TestbedStream final : public dv::Stream {
 public:
  explicit TestbedStream(const TestbedOptions& options) : options_(options), random_(options.seed) {}

  Status dispatch(const dv::Dispatch& d) override {
    const auto& kernel = static_cast<const TestbedKernel&>(*d.kernel);
    auto made = std::make_shared<bed::Dispatch>(kernel.kernel.dispatch());
    std::vector<dv::BufferRef> kept;
    std::vector<ArgumentPlace> places;
    for (const dv::Argument& a : d.arguments) {
      const auto index = static_cast<int>(a.index);
      if (a.buffer == nullptr) {
        made->bytes(index, a.value.data(), a.value.size());
        continue;
      }
      if (a.offset > a.buffer->bytes()) return Status::error(MARLIN_E_DEVICE, "argument %d begins behind its buffer", index);
      places.push_back({index, data_of(a.buffer) + a.offset, a.buffer->bytes() - a.offset});
      kept.push_back(a.buffer);
    }
    made->groups(d.groups.x - skipped_groups(options_, kernel.name), d.groups.y, d.groups.z)
        .threads(d.threads.x, d.threads.y, d.threads.z);
    made->check(options_.check).count(options_.counted != nullptr);
    made->seed(options_.seed).flush_to_zero(options_.flush_to_zero).publish_fragments(options_.fragments);
    recorded_.back().push_back([this, made, kept, places, name = kernel.name] {
      Apart apart;
      for (const ArgumentPlace& place : places)
        made->buffer(place.index, static_cast<void*>(options_.counted ? apart.copy(place) : place.data), place.bytes);
      const auto report = made->run();
      if (!report) {
        fail(report.message());
        return;
      }
      apart.bring_back();
      if (options_.counted) options_.counted(name, report.value().counters);
      running_ += report.value().seconds;
      if (const std::string text = report.value().text(); !text.empty()) {
        fail(text);
      }
    });
    return {};
  }
  Status copy(const dv::BufferRef& from, uint64_t from_offset, const dv::BufferRef& to, uint64_t to_offset,
              uint64_t bytes) override {
    recorded_.back().push_back([=] { std::memcpy(data_of(to) + to_offset, data_of(from) + from_offset, bytes); });
    return {};
  }
  Status fill(const dv::BufferRef& to, uint64_t offset, uint64_t bytes, uint8_t value) override {
    recorded_.back().push_back([=] { std::memset(data_of(to) + offset, value, bytes); });
    return {};
  }
  Status barrier() override {
    recorded_.emplace_back();
    return {};
  }
  Status commit() override {
    for (auto& together : recorded_) {
      if (options_.seed != 0) std::shuffle(together.begin(), together.end(), random_);
      for (const auto& command : together) command();
    }
    recorded_.assign(1, {});
    return {};
  }
  Status wait(uint64_t) override {
    busy_ = std::exchange(running_, 0);
    return failure_;
  }
  Status notify(void (*done)(void*, marlin_status), void* user) override {
    done(user, failure_.code());
    return {};
  }
  Status failure() const override { return failure_; }
  double busy_seconds() const override { return busy_; }

 private:
  void fail(const std::string& text) {
    if (failure_.ok()) failure_ = Status::error(MARLIN_E_DEVICE, "%s", text.c_str());
  }
  const TestbedOptions options_;
  std::mt19937_64 random_;
  double running_ = 0, busy_ = 0;                                // seconds since the last wait, and before it
  std::vector<std::vector<std::function<void()>>> recorded_{1};  // by barriers
  Status failure_;
};

std::string text_of(const std::string& file) {
  std::stringstream text;
  text << std::ifstream(MARLIN_SHADERS + file, std::ios::binary).rdbuf();
  return text.str();
}

/// The host's macros that leave the other kernels of a file out, as "NAME=VALUE": compiling all of them takes minutes. Small
/// files stay whole.
std::vector<std::string> defines_of(const std::string& name, std::span<const dv::Constant> constants) {
  std::vector<std::string> defines;
  if (name.starts_with("unpack")) return defines;
  std::istringstream lines(metal_marlin::metal::macros_of(name, constants));
  for (std::string line; std::getline(lines, line);) {
    line.erase(0, std::string("#define ").size());
    defines.push_back(line.replace(line.find(") ") + 1, 1, "="));
  }
  return defines;
}

/// Puts the text of a header, and of those through which it is included, in the places of their #includes. False if the text
/// does not include it.
bool put_header(std::string& text, const std::string& file) {
  const std::string include = "#include \"";
  for (size_t at = text.find(include); at != std::string::npos; at = text.find(include, at + 1)) {
    const size_t begin = at + include.size(), end = text.find('"', begin);
    const std::string name = text.substr(begin, end - begin);
    std::string header = name.starts_with("../") ? std::string() : text_of("/metal/" + name);
    if (name != file && !put_header(header, file)) continue;
    text.replace(at, end + 1 - at, header);
    return true;
  }
  return false;
}

/// The library of a text, made once in a process: tests have devices of their own, most of them with the same shaders. The
/// headers that a text includes are those of the tree, which do not change meanwhile.
bed::Result<bed::Library> library_of(const std::string& text, const bed::CompileOptions& options, const std::string& name) {
  static std::mutex mutex;
  static std::map<std::string, bed::Library> libraries;
  std::string key = std::to_string(options.language) + " " + std::to_string(static_cast<int>(options.contraction)) +
                    (options.late_constants ? " late" : "");
  for (const std::string& define : options.defines) key += "\n" + define;
  key += "\n" + name + "\n" + text;
  {
    const std::lock_guard lock(mutex);
    if (const auto found = libraries.find(key); found != libraries.end()) return found->second;
  }
  auto made = bed::Library::from_source(text, options, name);
  if (!made) return made.error();
  const std::lock_guard lock(mutex);
  return libraries.emplace(key, made.take()).first->second;
}

}  // namespace

TestbedDevice::TestbedDevice(TestbedOptions options) : options_(std::move(options)) {
  capabilities_.name = "Metal on CPU";
  capabilities_.architecture = "test-bed";
  capabilities_.matrix = capabilities_.bfloat = true;
  capabilities_.tensor = options_.tensor;
  capabilities_.unified_memory = options_.unified;
  capabilities_.page_bytes = 4096;
  capabilities_.memory_bytes = capabilities_.max_buffer_bytes = uint64_t{1} << 30;
}

Result<dv::BufferRef> TestbedDevice::allocate(uint64_t bytes, dv::Placement placement, const char*) {
  auto buffer = std::make_shared<TestbedBuffer>(nullptr, bytes);
  buffer->visible = capabilities_.unified_memory || placement == dv::Placement::shared;
  return dv::BufferRef(std::move(buffer));
}

Result<dv::BufferRef> TestbedDevice::wrap(void* host, uint64_t bytes, dv::Placement) {
  return dv::BufferRef(std::make_shared<TestbedBuffer>(static_cast<std::byte*>(host), bytes));
}

Result<dv::BufferRef> TestbedDevice::wrap_native(void* native) {
  if (native == nullptr) return Status::error(MARLIN_E_ARGUMENT, "no object of this device");
  const auto* buffer = static_cast<const dv::Buffer*>(native);
  return dv::BufferRef(std::make_shared<TestbedBuffer>(buffer->host(), buffer->bytes()));
}

Result<bed::Library> TestbedDevice::library(const std::string& name, std::span<const dv::Constant> constants) {
  const std::lock_guard lock(mutex_);
  const std::vector<std::string> defines = defines_of(name, constants);
  const std::string key = name + (defines.empty() ? "" : defines.back());
  if (const auto found = libraries_.find(key); found != libraries_.end()) return found->second;
  const std::string family(metal_marlin::metal::family_of(name));
  const bool tensor = family == "tensor" || family == "nax", prepares = family == "quantize" || family == "gather";
  const std::string file = (tensor ? "regdecode_" + family : prepares ? "prepare" : family) + ".metal";
  const std::string folder = tensor ? "/metal4/" : "/metal/";
  std::string changed = text_of(folder + file);
  if (changed.empty()) return Status::error(MARLIN_E_NOT_FOUND, "no kernel %s: there is no %s", name.c_str(), file.c_str());
  for (const TestbedOptions::Change& change : options_.changes) {
    if (change.file != file && !put_header(changed, change.file)) continue;
    const size_t at = changed.find(change.from);
    if (at == std::string::npos)
      return Status::error(MARLIN_E_INTERNAL, "%s has no \"%s\"", change.file.c_str(), change.from.c_str());
    changed.replace(at, change.from.size(), change.to);
  }
  if (const uint32_t skipped = skipped_groups(options_, name); skipped != 0) {
    const std::string begin = "(PRODUCT_PARAMETERS(T)) {";
    for (size_t at = 0; (at = changed.find(begin, at)) != std::string::npos;)
      changed.insert(at += begin.size(), "group.x += " + std::to_string(skipped) + ";");
  }
  bed::CompileOptions options;
  options.defines = defines;
  options.contraction = options_.contraction;
  options.late_constants = defines.empty() && !options_.counted;  // only products need macros; what is counted is folded
  if (tensor) options.language = 17;
  const auto made = library_of(changed, options, MARLIN_SHADERS + folder + file);  // as the tests of the shaders name it
  if (!made) return Status::error(MARLIN_E_UNSUPPORTED, "%s", made.message().c_str());
  const auto& names = made.value().kernel_names();
  if (std::find(names.begin(), names.end(), name) == names.end())
    return Status::error(MARLIN_E_NOT_FOUND, "%s has no kernel %s", file.c_str(), name.c_str());
  return libraries_.emplace(key, made.value()).first->second;
}

Result<dv::KernelRef> TestbedDevice::kernel(std::string_view name, std::span<const dv::Constant> constants) {
  MARLIN_ASSIGN(const bed::Library found, library(std::string(name), constants));
  bed::Kernel kernel = found.kernel(std::string(name));
  for (const dv::Constant& c : constants)
    kernel.constant(c.index, c.type == dv::Constant::Type::boolean ? bed::ConstantValue(c.bits != 0)
                                                                   : bed::ConstantValue(uint64_t{c.bits}));
  if (!options_.check) return dv::KernelRef(std::make_shared<TestbedKernel>(name, kernel, capabilities_.max_threads));
  const auto signature = kernel.signature();
  if (!signature) return Status::error(MARLIN_E_UNSUPPORTED, "%s", signature.message().c_str());
  return dv::KernelRef(std::make_shared<TestbedKernel>(name, kernel, signature.value().max_threads));
}

Result<std::unique_ptr<dv::Stream>> TestbedDevice::stream(const dv::StreamSource& source) {
  if (source.kind != MARLIN_NATIVE_NONE) return Status::error(MARLIN_E_ARGUMENT, "the test-bed has no native streams");
  return std::unique_ptr<dv::Stream>(std::make_unique<TestbedStream>(options_));
}

}  // namespace device_test
