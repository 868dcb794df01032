// The engine of the shader test-bed: every dispatch is checked.
#include <algorithm>

#include "engine.h"
#include "metal_on_cpu/metal_on_cpu.h"

namespace metal_framework {
namespace {

namespace bed = metal_on_cpu;

uint32_t narrow(uint64_t n) { return static_cast<uint32_t>(std::min<uint64_t>(n, UINT32_MAX)); }

class TestbedFunction : public Function {
 public:
  TestbedFunction(bed::Kernel kernel, const bed::Signature& signature)
      : kernel_(std::move(kernel)), max_threads_(signature.max_threads), threadgroup_memory_(signature.threadgroup_memory) {
    for (const auto& from : signature.arguments) arguments_.push_back({from.index, from.name, from.bytes});
  }
  const std::vector<Argument>& arguments() const override { return arguments_; }
  uint64_t max_threads() const override { return max_threads_; }
  size_t static_threadgroup_memory() const override { return threadgroup_memory_; }

  Outcome run(const Dispatch& dispatch) override {
    bed::Dispatch made = kernel_.dispatch();
    for (const auto& [index, binding] : dispatch.buffers) {
      made.buffer(static_cast<int>(index), static_cast<void*>(binding.data), binding.size);
    }
    for (const Binding& memory : dispatch.resident) made.resident(memory.data, memory.size);
    made.groups(narrow(dispatch.groups.x), narrow(dispatch.groups.y), narrow(dispatch.groups.z));
    made.threads(narrow(dispatch.group.x), narrow(dispatch.group.y), narrow(dispatch.group.z));
    Outcome outcome;
    const auto report = made.check().run();
    if (!report) {
      outcome.error = report.message();
      return outcome;
    }
    for (const auto& finding : report.value().findings) outcome.problems.push_back({finding.kind, finding.text()});
    return outcome;
  }

 private:
  bed::Kernel kernel_;
  std::vector<Argument> arguments_;
  uint64_t max_threads_;
  size_t threadgroup_memory_;
};

class TestbedLibrary : public Library {
 public:
  explicit TestbedLibrary(bed::Library library) : library_(std::move(library)) {}
  std::vector<std::string> names() const override { return library_.kernel_names(); }
  std::shared_ptr<Function> function(const std::string& name, const Constants& constants, std::string& error) override {
    const auto& names = library_.kernel_names();
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      error = "no function named " + name;
      return nullptr;
    }
    bed::Kernel kernel = library_.kernel(name);
    for (const auto& [index, value] : constants) std::visit([&](auto v) { kernel.constant(index, v); }, value);
    const auto signature = kernel.signature();
    error = signature.message();
    return signature ? std::make_shared<TestbedFunction>(kernel, signature.value()) : nullptr;
  }

 private:
  bed::Library library_;
};

class TestbedEngine : public Engine {
 public:
  std::string name() const override { return "Metal on CPU"; }
  std::shared_ptr<metal_framework::Library> compile(const std::string& source, int language_major,
                                                    std::string& error) override {
    bed::CompileOptions chosen;
    chosen.language = language_major >= 4 ? 17 : 14;
    auto library = bed::Library::from_source(source, chosen, "program_source");
    error = library ? library.value().compile_errors() : library.message();
    return error.empty() ? std::make_shared<TestbedLibrary>(library.take()) : nullptr;
  }
};

}  // namespace

std::unique_ptr<Engine> make_engine() { return std::make_unique<TestbedEngine>(); }

}  // namespace metal_framework
