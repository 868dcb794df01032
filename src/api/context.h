// A context: one backend with the host's callbacks. Its children keep it alive.
#pragma once

#include <atomic>
#include <memory>

#include "api/handle.h"
#include "api/stream.h"
#include "base/log.h"
#include "core/backend.h"
#include "metal_marlin/metal_marlin.h"

struct marlin_context final : metal_marlin::api::Handle {
  static constexpr auto kKind = metal_marlin::api::HandleKind::context;

  /// The caller owns the first reference.
  marlin_context(marlin_backend which, std::unique_ptr<metal_marlin::Backend> made,
                 metal_marlin::BackendOptions with)
      : Handle(kKind),
        backend_kind(which),
        options(std::move(with)),
        logger(options.logger),
        backend(std::move(made)) {}

  void add_ref() { refs_.fetch_add(1, std::memory_order_relaxed); }
  /// The last reference deletes the context, which joins the threads of the backend.
  void drop_ref() {
    if (refs_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }

  const marlin_backend backend_kind;
  const metal_marlin::BackendOptions options;  ///< the backend has its own copy
  const metal_marlin::Logger& logger;          ///< that of the options
  const std::unique_ptr<metal_marlin::Backend> backend;
  metal_marlin::api::StreamShells stream_shells;

 private:
  ~marlin_context() {
    if (options.tracer != nullptr) options.tracer->close();
  }
  std::atomic<uint32_t> refs_{1};
};

namespace metal_marlin::api {

using ContextRef = Ref<marlin_context>;

}  // namespace metal_marlin::api
