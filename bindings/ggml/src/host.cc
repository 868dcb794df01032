#include "host.h"

#include <cstring>
#include <new>

#include "log.h"

namespace marlin_ggml {
namespace {

/// A function of ggml's CPU backend, which a program may have loaded from anywhere; NULL if it has
/// none of this name.
template <typename Function>
Function cpu_function(const char* name) {
  return reinterpret_cast<Function>(
      ggml_backend_reg_get_proc_address(ggml_backend_dev_backend_reg(cpu_device()), name));
}

/// Whether ggml's CPU backend computes on OpenMP's threads, which stay. Otherwise it starts and
/// ends threads for each graph, unless it is given a pool.
bool uses_openmp() {
  const auto features = cpu_function<ggml_backend_get_features_t>("ggml_backend_get_features");
  if (features == nullptr) return false;
  for (const ggml_backend_feature* each = features(ggml_backend_dev_backend_reg(cpu_device()));
       each != nullptr && each->name != nullptr; ++each) {
    if (std::strcmp(each->name, "OPENMP") == 0) return true;
  }
  return false;
}

}  // namespace

ggml_backend_dev_t cpu_device() { return ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU); }

std::unique_ptr<Host> Host::create(int threads) {
  if (cpu_device() == nullptr) {
    log(GGML_LOG_LEVEL_ERROR, "expected a CPU device of ggml beside this one, found none");
    return nullptr;
  }
  const ggml_backend_t cpu = ggml_backend_dev_init(cpu_device(), nullptr);
  if (cpu == nullptr) {
    log(GGML_LOG_LEVEL_ERROR, "ggml's CPU device gave no backend");
    return nullptr;
  }
  std::unique_ptr<Host> host(new Host(cpu));
  host->set_threads(threads);
  return host;
}

void Host::set_threads(int threads) {
  if (threads == threads_) return;
  threads_ = threads;
  if (const auto set = cpu_function<ggml_backend_set_n_threads_t>("ggml_backend_set_n_threads"))
    set(cpu_.get(), threads);
  const auto make = cpu_function<decltype(&ggml_threadpool_new)>("ggml_threadpool_new");
  const auto free = cpu_function<decltype(&ggml_threadpool_free)>("ggml_threadpool_free");
  const auto use =
      cpu_function<decltype(&ggml_backend_cpu_set_threadpool)>("ggml_backend_cpu_set_threadpool");
  if (uses_openmp() || make == nullptr || free == nullptr || use == nullptr) return;
  ggml_threadpool_params params = ggml_threadpool_params_default(threads);
  Pool pool(threads > 1 ? make(&params) : nullptr, free);
  use(cpu_.get(), pool.get());
  pool_ = std::move(pool);
}

void Host::set_abort_callback(ggml_abort_callback callback, void* user) {
  if (const auto set =
          cpu_function<ggml_backend_set_abort_callback_t>("ggml_backend_set_abort_callback"))
    set(cpu_.get(), callback, user);
}

}  // namespace marlin_ggml
