// What the objects of the public interface hold.
#pragma once

#include <mutex>
#include <tuple>

#include "../include/metal_on_cpu/metal_on_cpu.h"
#include "compiler/compiler.h"
#include "runtime/worker.h"

namespace metal_on_cpu {

struct Library::State {
  std::string name;
  CompileOptions options;
  Preprocessed source;

  /// The image for these constants with this kernel, compiled at its first use. Threads may call it at once. `together` is how
  /// many kernels of a source are compiled with this one; 0: one if there are constants, else some.
  Result<std::shared_ptr<const Image>> image(const std::string& kernel, const ConstantLiterals& constants, bool checked,
                                             size_t together = 0) const;
  /// Compiles all parts, several at once. Empty, or the error.
  std::string compile_all(const ConstantLiterals& constants) const;

 private:
  using Key = std::tuple<ConstantLiterals, bool, std::string>;
  mutable std::mutex mutex_;
  mutable std::map<Key, std::shared_ptr<const Image>> images_;
};

struct Kernel::State {
  std::shared_ptr<const Library::State> library;
  std::string name;
  ConstantLiterals constants;
  ConstantValues values;
};

struct Dispatch::State {
  std::shared_ptr<const Kernel::State> kernel;
  std::map<int, BufferBinding> buffers;
  std::vector<Resident> resident;
  Size3 groups, threads;
  bool checked = false, counted = false, flush_to_zero = false;
  bool reports = true;  // findings, whose lines another process looks up
  bool hides_fragments = true;
  uint64_t seed = 0, step_budget = 100'000'000;
  std::optional<double> time_limit;
  std::string wrong;  // what a setter was given that cannot be
};

}  // namespace metal_on_cpu
