// Work split into tasks that never wait for each other.
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

namespace metal_marlin {

/// A borrowed callable `void(uint32_t index)`. It does not allocate, and it is valid while the
/// callable lives.
class TaskRef {
 public:
  template <class F>
    requires(!std::is_same_v<std::remove_cvref_t<F>, TaskRef>)
  TaskRef(F&& f)
      : object_(const_cast<void*>(static_cast<const void*>(std::addressof(f)))),
        call_([](void* o, uint32_t i) { (*static_cast<std::remove_reference_t<F>*>(o))(i); }) {}
  void operator()(uint32_t index) const { call_(object_, index); }

 private:
  void* object_;
  void (*call_)(void*, uint32_t);
};

/// Runs each of task(0..tasks-1) once, on any threads in any order, and returns when all are done.
class TaskRunner {
 public:
  virtual ~TaskRunner() = default;
  virtual void run(uint32_t tasks, TaskRef task) = 0;
  /// How many tasks can run at once, at least 1. This is a hint for splitting work; results must
  /// not depend on it.
  virtual uint32_t width() const = 0;
};

}  // namespace metal_marlin
