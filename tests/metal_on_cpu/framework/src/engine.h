// The seam: what the framework needs from something that compiles and runs shaders. One program links one implementation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

namespace metal_framework {

struct Size3 {
  uint64_t x = 1, y = 1, z = 1;
  uint64_t count() const { return x * y * z; }
};

/// Values of function constants by their indices.
using Constants = std::map<uint32_t, std::variant<bool, uint64_t>>;

/// One buffer of a kernel that the host has to bind.
struct Argument {
  uint32_t index = 0;
  std::string name;
  size_t size = 0;       // bytes that must be there: of what a reference refers to, or of one element of a pointer
  size_t alignment = 1;  // of the same
};

struct Problem {
  std::string kind, message;
};

/// Memory bound to an index. Bytes [data, data + size) may be accessed: from the offset to the end of the buffer.
struct Binding {
  std::byte* data = nullptr;
  size_t size = 0;
};

struct Dispatch {
  std::map<uint32_t, Binding> buffers;
  Size3 groups, group;
  std::vector<Binding> resident;  // further memory that pointers in buffers may lead to
};

/// What a dispatch came to. `error`: it was not run, and why.
struct Outcome {
  std::vector<Problem> problems;
  std::string error;
};

/// A kernel with its constants set. run() may be called from several threads.
class Function {
 public:
  virtual ~Function() = default;
  virtual const std::vector<Argument>& arguments() const = 0;
  virtual uint64_t max_threads() const { return 1024; }
  virtual size_t static_threadgroup_memory() const { return 0; }
  virtual Outcome run(const Dispatch& dispatch) = 0;
};

class Library {
 public:
  virtual ~Library() = default;
  virtual std::vector<std::string> names() const = 0;
  /// nullptr with `error` set when there is no such function, or it does not compile with these constants.
  virtual std::shared_ptr<Function> function(const std::string& name, const Constants& constants, std::string& error) = 0;
};

class Engine {
 public:
  virtual ~Engine() = default;
  virtual std::string name() const = 0;
  /// nullptr with `error` set, as a compiler writes it, when the source does not compile.
  virtual std::shared_ptr<Library> compile(const std::string& source, int language_major, std::string& error) = 0;
};

/// Defined by the one engine that is linked.
std::unique_ptr<Engine> make_engine();

}  // namespace metal_framework
