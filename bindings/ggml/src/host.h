// ggml's own CPU backend, which computes whatever is no product of packed weights.
#pragma once

#include <ggml-backend.h>
#include <ggml-cpu.h>
#include <ggml.h>

#include <memory>

namespace marlin_ggml {

/// ggml's CPU device; NULL as long as none is registered.
ggml_backend_dev_t cpu_device();

/// A backend of cpu_device(). One thread at a time.
class Host {
 public:
  /// NULL, with a line in the log, where there is no CPU device or no memory.
  static std::unique_ptr<Host> create(int threads);

  void set_threads(int threads);
  /// `callback` is asked after each node whether to stop the graph.
  void set_abort_callback(ggml_abort_callback callback, void* user);
  ggml_status compute(ggml_cgraph* graph) { return ggml_backend_graph_compute(cpu_.get(), graph); }

 private:
  using Pool = std::unique_ptr<ggml_threadpool, void (*)(ggml_threadpool*)>;
  struct Free {
    void operator()(ggml_backend_t backend) const { ggml_backend_free(backend); }
  };
  explicit Host(ggml_backend_t cpu) : cpu_(cpu) {}

  std::unique_ptr<ggml_backend, Free> cpu_;
  int threads_ = 0;
  Pool pool_{nullptr, nullptr};
};

}  // namespace marlin_ggml
