// Library and Kernel: sources, and the values of function constants.
#include <cmath>
#include <cstdio>
#include <fstream>
#include <sstream>

#include "compiler/metallib.h"
#include "state.h"

namespace metal_on_cpu {
namespace {

std::string literal(const ConstantValue& value) {
  if (const bool* b = std::get_if<bool>(&value)) return *b ? "true" : "false";
  if (const int64_t* i = std::get_if<int64_t>(&value)) {
    return *i == INT64_MIN ? "(-0x7fffffffffffffffl-1)" : std::to_string(*i) + (*i == static_cast<int32_t>(*i) ? "" : "l");
  }
  if (const uint64_t* u = std::get_if<uint64_t>(&value)) return std::to_string(*u) + (*u <= UINT32_MAX ? "u" : "ul");
  const double d = std::get<double>(value);
  if (std::isnan(d)) return "__builtin_nanf(\"\")";
  if (std::isinf(d)) return d > 0 ? "__builtin_inff()" : "-__builtin_inff()";
  char text[64];
  std::snprintf(text, sizeof text, "%af", d);
  return text;
}

}  // namespace

Result<std::shared_ptr<const Image>> Library::State::image(const std::string& kernel, const ConstantLiterals& constants,
                                                           bool checked) const {
  const Key key{constants.by_index, constants.by_name, checked, source.metallib.empty() ? std::string() : kernel};
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (const auto found = images_.find(key); found != images_.end()) return found->second;
  }
  auto file = compile(source, kernel, constants, checked, options);
  if (!file) return file.error();
  auto loaded = Image::load(file.value());
  if (!loaded) return loaded.error();
  const std::lock_guard<std::mutex> lock(mutex_);
  return images_.emplace(key, loaded.take()).first->second;
}

Result<Library> Library::from_source(const std::string& text, const CompileOptions& options, const std::string& name) {
  auto source = preprocess(name, text, options);
  if (!source) return source.error();
  auto state = std::make_shared<State>();
  state->source = source.take();
  state->options = options;
  state->name = name;
  Library library;
  library.state_ = std::move(state);
  return library;
}

Result<Library> Library::from_file(const std::string& path, const CompileOptions& options) {
  if (path.ends_with(".metallib")) {
    auto kernels = metallib_kernels(path);
    if (!kernels) return kernels.error();
    auto state = std::make_shared<State>();
    state->source = {"", kernels.take(), {}, path};
    state->options = options;
    state->name = path;
    Library library;
    library.state_ = std::move(state);
    return library;
  }
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  if (!in || !(text << in.rdbuf())) return Error{path + ": cannot be read, or is empty"};
  return from_source(text.str(), options, path);
}

const std::vector<std::string>& Library::kernel_names() const { return state_->source.kernels; }

const std::vector<FunctionConstant>& Library::function_constants() const { return state_->source.constants; }

Kernel Library::kernel(const std::string& name) const {
  Kernel k;
  k.state_ = std::make_shared<Kernel::State>();
  k.state_->library = state_;
  k.state_->name = name;
  return k;
}

Kernel& Kernel::constant(uint32_t index, ConstantValue value) {
  state_->constants.by_index[index] = literal(value);
  return *this;
}

Kernel& Kernel::constant(const std::string& name, ConstantValue value) {
  state_->constants.by_name[name] = literal(value);
  return *this;
}

Dispatch Kernel::dispatch() const {
  auto state = std::make_shared<Dispatch::State>();
  state->kernel = std::make_shared<const Kernel::State>(*state_);
  return Dispatch(std::move(state));
}

}  // namespace metal_on_cpu
