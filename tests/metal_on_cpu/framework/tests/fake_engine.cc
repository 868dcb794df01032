#include "fake_engine.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <regex>

namespace metal_framework::fake {
namespace {

struct State {
  std::mutex mutex;
  std::map<std::string, std::function<void(const Thread&)>> bodies;
  Outcome next;
};
State& state() {
  static State* const all = new State;
  return *all;
}

size_t size_of(const std::string& type) {
  static const std::map<std::string, size_t> sizes = {{"float", 4}, {"uint", 4}, {"uchar", 1}, {"ulong", 8}};
  const auto entry = sizes.find(type);
  return entry == sizes.end() ? 1 : entry->second;
}

std::vector<Argument> arguments_of(const std::string& signature) {
  static const std::regex pattern(R"((?:device|constant)\s+(?:const\s+)?(\w+)\s*[*&]\s*(\w+)\s*\[\[buffer\((\d+)\)\]\])");
  std::vector<Argument> all;
  for (std::sregex_iterator at(signature.begin(), signature.end(), pattern), end; at != end; ++at) {
    const size_t size = size_of((*at)[1]);
    all.push_back({static_cast<uint32_t>(std::stoul((*at)[3])), (*at)[2], size, size});
  }
  return all;
}

struct Kernel {
  std::vector<Argument> arguments;
  uint64_t max_threads;
  size_t threadgroup_memory;
};

// threadgroup float tile[64];
size_t variables_of(const std::string& body) {
  static const std::regex pattern(R"(threadgroup\s+(\w+)\s+\w+\[(\d+)\];)");
  size_t bytes = 0;
  for (std::sregex_iterator at(body.begin(), body.end(), pattern), end; at != end; ++at)
    bytes += size_of((*at)[1]) * std::stoul((*at)[2]);
  return bytes;
}

class FakeFunction : public Function {
 public:
  FakeFunction(std::string name, const Kernel& kernel, Constants constants)
      : name_(std::move(name)), kernel_(kernel), constants_(std::move(constants)) {}
  const std::vector<Argument>& arguments() const override { return kernel_.arguments; }
  uint64_t max_threads() const override { return kernel_.max_threads; }
  size_t static_threadgroup_memory() const override { return kernel_.threadgroup_memory; }

  Outcome run(const Dispatch& dispatch) override {
    std::function<void(const Thread&)> body;
    Outcome outcome;
    {
      const std::lock_guard<std::mutex> lock(state().mutex);
      std::swap(outcome, state().next);
      body = state().bodies[name_];
    }
    if (!outcome.error.empty() || !body) return outcome;
    const Size3 &groups = dispatch.groups, &group = dispatch.group;
    for (uint64_t z = 0; z < groups.z * group.z; ++z) {
      for (uint64_t y = 0; y < groups.y * group.y; ++y) {
        for (uint64_t x = 0; x < groups.x * group.x; ++x) body({dispatch, constants_, {x, y, z}});
      }
    }
    return outcome;
  }

 private:
  std::string name_;
  Kernel kernel_;
  Constants constants_;
};

class FakeLibrary : public Library {
 public:
  explicit FakeLibrary(const std::string& source) {
    static const std::regex kernel(
        R"((\[\[max_total_threads_per_threadgroup\((\d+)\)\]\]\s*)?kernel\s+void\s+(\w+)\s*\(([^{]*)\{([^}]*))");
    for (std::sregex_iterator at(source.begin(), source.end(), kernel), end; at != end; ++at) {
      kernels_[(*at)[3]] = {arguments_of((*at)[4]), (*at)[2].matched ? std::stoul((*at)[2]) : 1024, variables_of((*at)[5])};
    }
  }
  std::vector<std::string> names() const override {
    std::vector<std::string> all;
    for (const auto& [name, kernel] : kernels_) all.push_back(name);
    return all;
  }
  std::shared_ptr<Function> function(const std::string& name, const Constants& constants, std::string& error) override {
    const auto kernel = kernels_.find(name);
    if (kernel != kernels_.end()) return std::make_shared<FakeFunction>(name, kernel->second, constants);
    error = "no function named " + name;
    return nullptr;
  }

 private:
  std::map<std::string, Kernel> kernels_;
};

class FakeEngine : public Engine {
 public:
  std::string name() const override { return "Fake engine"; }
  std::shared_ptr<metal_framework::Library> compile(const std::string& source, int, std::string& error) override {
    if (std::count(source.begin(), source.end(), '{') == std::count(source.begin(), source.end(), '}'))
      return std::make_shared<FakeLibrary>(source);
    error = "program_source:1:1: error: expected '}'";
    return nullptr;
  }
};

}  // namespace

void define(const std::string& kernel, std::function<void(const Thread&)> body) {
  const std::lock_guard<std::mutex> lock(state().mutex);
  state().bodies[kernel] = std::move(body);
}

void set_next_outcome(Outcome outcome) {
  const std::lock_guard<std::mutex> lock(state().mutex);
  state().next = std::move(outcome);
}

}  // namespace metal_framework::fake

std::unique_ptr<metal_framework::Engine> metal_framework::make_engine() { return std::make_unique<fake::FakeEngine>(); }
