// Library and Kernel: sources, and the values of function constants.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <thread>

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

// A source's kernels are compiled in parts, so that a dispatch does not wait for all of them. Values of function constants are
// for one kernel, as those of a pipeline of Metal are, so that a dispatch with such values needs no other kernel.
constexpr size_t kPartKernels = 8;

Result<std::shared_ptr<const Image>> Library::State::image(const std::string& kernel, const ConstantLiterals& constants,
                                                           bool checked, size_t together) const {
  const auto found = std::find(source.kernels.begin(), source.kernels.end(), kernel);
  const ConstantLiterals& folded = options.late_constants ? ConstantLiterals() : constants;
  if (together == 0) together = constants.empty() ? kPartKernels : 1;
  const auto number = found == source.kernels.end() ? 0 : static_cast<size_t>(found - source.kernels.begin());
  const size_t first = number / together * together;
  const ImageRequest request{{first, first + together}, folded, checked};
  const std::string part = std::to_string(first) + "+" + std::to_string(together);
  const Key k{folded, checked, part};
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (const auto kept = images_.find(k); kept != images_.end()) return kept->second;
  }
  auto file = compile(source, request, options);
  if (!file) return file.error();
  auto loaded = Image::load(file.value());
  if (!loaded) return loaded.error();
  const std::lock_guard<std::mutex> lock(mutex_);
  return images_.emplace(k, loaded.take()).first->second;
}

std::string Library::State::compile_all(const ConstantLiterals& constants) const {
  const size_t parts = std::max<size_t>(1, (source.kernels.size() + kPartKernels - 1) / kPartKernels);
  const size_t workers = std::min<size_t>(parts, std::max(1u, std::thread::hardware_concurrency()));
  std::vector<std::string> errors(parts);
  std::atomic<size_t> next{0};
  const auto work = [&] {
    for (size_t i = next++; i < parts; i = next++) {
      const auto loaded = image(i * kPartKernels < source.kernels.size() ? source.kernels[i * kPartKernels] : "", constants,
                                true, kPartKernels);
      if (!loaded) errors[i] = loaded.message();
    }
  };
  std::vector<std::thread> threads;
  for (size_t i = 1; i < workers; ++i) threads.emplace_back(work);
  work();
  for (std::thread& t : threads) t.join();
  for (const std::string& error : errors) {
    if (!error.empty()) return error;
  }
  return {};
}

Result<Library> Library::from_source(const std::string& text, const CompileOptions& options, const std::string& name) {
  auto source = preprocess(name, text, options);
  if (!source) return source.error();
  auto state = std::make_shared<State>();
  state->source = source.take();
  state->options = options;
  state->name = name;
  // A brace that is missing may hide all kernels. Then no dispatch will have the compiler tell.
  if (state->source.kernels.empty()) {
    if (std::string wrong = state->compile_all({}); !wrong.empty()) return Error{wrong};
  }
  Library library;
  library.state_ = std::move(state);
  return library;
}

Result<Library> Library::from_file(const std::string& path, const CompileOptions& options) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  if (!in || !(text << in.rdbuf())) return Error{path + ": cannot be read, or is empty"};
  return from_source(text.str(), options, path);
}

const std::vector<std::string>& Library::kernel_names() const { return state_->source.kernels; }

Kernel Library::kernel(const std::string& name) const {
  Kernel k;
  k.state_ = std::make_shared<Kernel::State>();
  k.state_->library = state_;
  k.state_->name = name;
  return k;
}

Kernel& Kernel::constant(uint32_t index, ConstantValue value) {
  state_->constants[index] = literal(value);
  state_->values[index] = std::visit([](auto v) { return static_cast<double>(v); }, value);
  return *this;
}

Result<Registers> Kernel::registers() const {
  const Library::State& library = *state_->library;
  const auto& names = library.source.kernels;
  const auto number = static_cast<size_t>(std::find(names.begin(), names.end(), state_->name) - names.begin());
  if (number == names.size()) return Error{library.name + ": there is no kernel '" + state_->name + "'"};
  return count_registers(library.source, {{number, number + 1}, state_->constants}, library.options);
}

Dispatch Kernel::dispatch() const {
  auto state = std::make_shared<Dispatch::State>();
  state->kernel = std::make_shared<const Kernel::State>(*state_);
  return Dispatch(std::move(state));
}

}  // namespace metal_on_cpu
