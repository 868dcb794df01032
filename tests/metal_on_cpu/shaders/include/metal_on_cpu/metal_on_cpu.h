// Metal compute shaders on the CPU: compiled unchanged, run, checked and counted.
//
//   auto library = Library::from_file("scale.metal");
//   auto report = library.value().kernel("scale").dispatch()
//                     .buffer(0, x).buffer(1, y).value(2, 2.5f).groups(64).threads(128).check().run();
//   ASSERT_TRUE(report.ok()) << report.message();
//   EXPECT_EQ(report.value().text(), "");
//
// Everything may be used from several threads; a Dispatch by one at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "result.h"

namespace metal_on_cpu {

struct Size3 {
  uint32_t x = 1, y = 1, z = 1;
  uint64_t count() const { return uint64_t{x} * y * z; }
};

/// Which a * b + c in one expression are rounded once. Apple's compiler leaves the choice open for all; the hardware fuses
/// them.
enum class Contraction : uint8_t {
  kOff,
  kFloat,  // scalars and vectors of float
  kAll,    // half and bfloat too
};

struct CompileOptions {
  std::vector<std::string> include_folders;
  std::vector<std::string> defines;  // "NAME" or "NAME=VALUE"
  /// 14: the language of Metal up to 3.2, to which C++17 is an extension. 17: that of Metal 4, with tensors.
  int language = 14;
  Contraction contraction = Contraction::kFloat;
  /// One image of a kernel serves all sets of function constants, of at most 53 bits each: it asks for their values when it
  /// runs. Nothing is folded, so the image is larger and slower than one of a single set.
  bool late_constants = false;
  /// Where images are kept; empty: $METAL_ON_CPU_CACHE, or a folder of this user under the temporary folder.
  std::string cache;
};

/// What the checker found: one entry a place and kind.
struct Finding {
  std::string kind;  // "out-of-bounds-read", "threadgroup-race", ...; README.md lists them
  std::string file;  // of the shader
  uint32_t line = 0;
  std::string kernel;
  std::string message;         // about its first occurrence
  Size3 threadgroup{0, 0, 0};  // first occurrence: position of the threadgroup in the grid
  Size3 thread{0, 0, 0};       // and of the thread in the threadgroup
  int buffer = -1;             // index of the buffer concerned, or -1
  int64_t offset = 0;          // byte in that buffer or threadgroup variable
  uint64_t count = 1;          // occurrences

  /// "scale.metal:12: threadgroup-race: ..." in one line.
  std::string text() const;
};

/// Traffic between the threads and one buffer.
struct BufferCounters {
  uint64_t bytes_read = 0, bytes_written = 0;  // requested
  uint64_t reads = 0, writes = 0;              // by threads
  uint64_t unique_bytes_read = 0;
  uint64_t unique_lines = 0;     // 64-byte lines touched at least once
  uint64_t simdgroup_lines = 0;  // 64-byte lines, counted once for each instruction of a simdgroup
};

struct Counters {
  uint64_t threadgroups = 0, threads = 0;
  uint64_t threadgroup_barriers = 0;
  uint64_t matrix_multiplies = 0;     // by simdgroups
  uint64_t tensor_multiply_adds = 0;  // of operations on tensors
  uint64_t threadgroup_bytes_written = 0;
  uint64_t threadgroup_memory = 0;             // bytes of one threadgroup
  std::map<std::string, uint64_t> operations;  // arithmetic by class, of all threads
  std::map<int, BufferCounters> buffers;
};

struct Report {
  std::vector<Finding> findings;
  Counters counters;
  double seconds = 0;      // of the dispatch, without compiling
  double cpu_seconds = 0;  // the same, of this thread
  bool complete = true;    // false: some threadgroups were given up after a finding, and their results are missing

  /// All findings, one a line; empty when there are none.
  std::string text() const;
};

/// A function constant's value. Its type decides how it is written into the shader.
using ConstantValue = std::variant<bool, int64_t, uint64_t, double>;

class Dispatch {
 public:
  /// The caller's memory, which must outlive run(). Overlapping ranges are one allocation. The shader has a copy, which run()
  /// copies back if the shader has changed it; an access outside of it is a finding, in fast mode if it is outside of the
  /// copy's pages.
  Dispatch& buffer(int index, void* data, size_t bytes);
  Dispatch& buffer(int index, const void* data, size_t bytes);
  template <class C>
    requires requires(C& c) { std::span(c); }
  Dispatch& buffer(int index, C&& container) {
    auto all = std::span(container);
    return buffer(index, all.data(), all.size_bytes());
  }
  /// Like buffer(), but reading a byte before the shader has written it is a finding.
  Dispatch& output(int index, void* data, size_t bytes);
  template <class C>
    requires requires(C& c) { std::span(c); }
  Dispatch& output(int index, C& container) {
    auto all = std::span(container);
    return output(index, all.data(), all.size_bytes());
  }
  /// A copy of a value, as setBytes makes it.
  Dispatch& bytes(int index, const void* data, size_t size);
  template <class T>
  Dispatch& value(int index, const T& v) {
    return bytes(index, &v, sizeof v);
  }
  /// Memory that the shader reaches by its address, which the host has written into a buffer. It stays where it is.
  Dispatch& resident(void* data, size_t bytes);

  Dispatch& groups(uint32_t x, uint32_t y = 1, uint32_t z = 1);   // threadgroups of the grid
  Dispatch& threads(uint32_t x, uint32_t y = 1, uint32_t z = 1);  // of one threadgroup

  Dispatch& check(bool on = true);  // checked mode
  Dispatch& count(bool on = true);  // counters; implies checked mode
  Dispatch& seed(uint64_t seed);    // order of lanes, simdgroups and threadgroups; 0: ascending
  /// A simdgroup holds tensors of multiples of 16 x 16 elements in fragments as every Apple GPU with tensor operations so far
  /// does. Otherwise any thread holds any element.
  Dispatch& publish_fragments(bool on = true);
  Dispatch& flush_to_zero(bool on = true);  // float subnormals are zero, as with Apple's default; half subnormals stay
  Dispatch& step_budget(uint64_t blocks);   // basic blocks that a thread may execute in checked mode; 10^8 without this call
  /// CPU time that it may take; then the dispatch ends with a finding. 0: no limit. Without this call: 60.
  Dispatch& time_limit(double seconds);

  /// Compiles if needed, runs, and reports. An Error is a dispatch that Metal would refuse, or a shader that does not compile.
  Result<Report> run();

  struct State;  // opaque

 private:
  friend class Kernel;
  explicit Dispatch(std::shared_ptr<State> state);
  std::shared_ptr<State> state_;
};

/// What a host has to give to a kernel.
struct Signature {
  struct Argument {
    uint32_t index = 0;  // [[buffer(index)]]
    std::string name;
    size_t bytes = 0;  // of what a reference refers to; 0 for a pointer
  };
  std::vector<Argument> arguments;  // those that the function constants leave
  uint32_t max_threads = 1024;      // of a threadgroup
  /// Bytes of the kernel's own threadgroup variables, as far as one thread gets with buffers of zeros.
  size_t threadgroup_memory = 0;
};

/// What a thread of a kernel would have if an Apple GPU had LLVM's code for another one with simdgroups of 32: README.md.
struct Registers {
  uint32_t used = 0;    // of 32 bits, of the 128 that an Apple GPU gives a thread
  uint32_t memory = 0;  // bytes for what is beyond them, and for arrays that are indexed at run time
};

class Kernel {
 public:
  Kernel& constant(uint32_t index, ConstantValue value);
  Dispatch dispatch() const;
  /// Compiles if needed, for checked mode.
  Result<Signature> signature() const;
  /// Compiles for a GPU, once for each set of function constants.
  Result<Registers> registers() const;

  struct State;  // opaque

 private:
  friend class Library;
  std::shared_ptr<State> state_;
};

class Library {
 public:
  /// `name` is what messages call the source.
  static Result<Library> from_source(const std::string& text, const CompileOptions& options = {},
                                     const std::string& name = "shader.metal");
  static Result<Library> from_file(const std::string& path, const CompileOptions& options = {});

  const std::vector<std::string>& kernel_names() const;
  /// Compiles everything as it is with function constants of 0; sources are else compiled at their first use. Empty, or the
  /// error.
  std::string compile_errors() const;
  /// A kernel of that name; when there is none, Dispatch::run() says so.
  Kernel kernel(const std::string& name) const;

  struct State;  // opaque

 private:
  std::shared_ptr<const State> state_;
};

}  // namespace metal_on_cpu
