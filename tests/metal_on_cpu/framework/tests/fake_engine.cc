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
  static const std::map<std::string, size_t> sizes = {{"float", 4}, {"uint", 4},  {"int", 4},    {"half", 2},
                                                      {"uchar", 1}, {"ulong", 8}, {"float4", 16}};
  const auto entry = sizes.find(type);
  return entry == sizes.end() ? 1 : entry->second;
}

std::vector<Argument> arguments_of(const std::string& signature) {
  static const std::regex pattern(
      R"((device|constant|threadgroup)\s+(const\s+)?(\w+)(\s+const)?\s*[*&]\s*(\w+)\s*\[\[(buffer|threadgroup)\((\d+)\)\]\])");
  std::vector<Argument> all;
  for (std::sregex_iterator at(signature.begin(), signature.end(), pattern), end; at != end; ++at) {
    const std::smatch& match = *at;
    Argument argument;
    argument.kind = match[6] == "threadgroup" ? Argument::Kind::kThreadgroup : Argument::Kind::kBuffer;
    argument.index = static_cast<uint32_t>(std::stoul(match[7]));
    argument.name = match[5];
    argument.read_only = match[1] == "constant" || match[2].matched || match[4].matched;
    argument.size = argument.alignment = size_of(match[3]);
    all.push_back(argument);
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
    Size3 grid = dispatch.grid;
    if (!dispatch.grid_is_threads) {
      grid = {grid.x * dispatch.group.x, grid.y * dispatch.group.y, grid.z * dispatch.group.z};
    }
    for (uint64_t z = 0; z < grid.z; ++z) {
      for (uint64_t y = 0; y < grid.y; ++y) {
        for (uint64_t x = 0; x < grid.x; ++x) body({dispatch, constants_, {x, y, z}});
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
    static const std::regex constant(R"(constant\s+(\w+)\s+(\w+)\s*\[\[function_constant\((\d+)\)\]\])");
    for (std::sregex_iterator at(source.begin(), source.end(), constant), end; at != end; ++at) {
      constants_.push_back({(*at)[2], static_cast<uint32_t>(std::stoul((*at)[3])), (*at)[1]});
    }
  }
  std::vector<std::string> names() const override {
    std::vector<std::string> all;
    for (const auto& [name, kernel] : kernels_) all.push_back(name);
    return all;
  }
  std::vector<FunctionConstant> constants(const std::string&) const override { return constants_; }
  std::shared_ptr<Function> function(const std::string& name, const Constants& given, std::string& error) override {
    const auto kernel = kernels_.find(name);
    if (kernel == kernels_.end()) {
      error = "no function named " + name;
      return nullptr;
    }
    Constants resolved = given;
    for (const FunctionConstant& constant : constants_) {
      const auto by_name = given.by_name.find(constant.name);
      if (by_name != given.by_name.end()) resolved.by_index[constant.index] = by_name->second;
    }
    return std::make_shared<FakeFunction>(name, kernel->second, resolved);
  }

 private:
  std::map<std::string, Kernel> kernels_;
  std::vector<FunctionConstant> constants_;
};

class FakeEngine : public Engine {
 public:
  std::string name() const override { return "Fake engine"; }
  std::shared_ptr<metal_framework::Library> compile(const std::string& source, const CompileOptions& options,
                                                    std::string& error) override {
    std::string expanded = source;
    for (const auto& [name, value] : options.macros)
      expanded = std::regex_replace(expanded, std::regex("\\b" + name + "\\b"), value);
    if (std::count(expanded.begin(), expanded.end(), '{') != std::count(expanded.begin(), expanded.end(), '}')) {
      error = "program_source:1:1: error: expected '}'";
      return nullptr;
    }
    return std::make_shared<FakeLibrary>(expanded);
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
